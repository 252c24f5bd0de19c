use super::*;

fn refused(text: &str, says: &str) {
    let error = text.parse::<FaultPlan>().unwrap_err().to_string();
    assert!(error.contains(says), "{text}: {error}");
}

#[test]
fn a_plan_has_what_its_text_says() {
    let text = "rnr=0.5,retry=1,loss=0,flush=0.25,delay=0.1:1.5ms,event=port_err@2s,\
                    event=port_active@0ns,seed=18446744073709551615";
    let events = vec![
        (ibv_event_type::IBV_EVENT_PORT_ERR, 2_000_000_000),
        (ibv_event_type::IBV_EVENT_PORT_ACTIVE, 0),
    ];
    let (rnr, retry, loss, flush, delay) = (0.5, 1.0, 0.0, 0.25, 0.1);
    let (delay_ns, seed) = (1_500_000, Some(u64::MAX));
    let plan = FaultPlan { rnr, retry, loss, flush, delay, delay_ns, events, seed };
    assert_eq!(text.parse(), Ok(plan));
}

#[test]
fn a_delay_without_a_probability_strikes_always() {
    let plan: FaultPlan = "delay=50us".parse().unwrap();
    assert_eq!((plan.delay, plan.delay_ns, plan.seed), (1.0, 50_000, None));
    assert!(plan.strikes_requests() && !plan.draws());
    assert!("rnr=0.5,retry=1".parse::<FaultPlan>().unwrap().draws());
    let plan: FaultPlan = "event=gid_change@1ms,rnr=0".parse().unwrap();
    assert!(!plan.strikes_requests());
}

#[test]
fn blanks_around_commas_do_not_count() {
    let plan = " rnr=0.5 , retry=1,\tseed=7\n".parse::<FaultPlan>();
    assert_eq!(plan, "rnr=0.5,retry=1,seed=7".parse());
}

#[test]
fn all_events_are_known_by_their_names() {
    for name in EVENTS {
        let (event, at) = event(&format!("{name}@1us")).unwrap();
        assert_eq!(at, 1000);
        let text = constant(event);
        assert_eq!(text, name, "{event:?}");
    }
}

/// The name in the ABI's header, less what all have.
fn constant(event: ibv_event_type) -> String {
    let names = [
        (ibv_event_type::IBV_EVENT_DEVICE_FATAL.0, "DEVICE_FATAL"),
        (ibv_event_type::IBV_EVENT_PORT_ACTIVE.0, "PORT_ACTIVE"),
        (ibv_event_type::IBV_EVENT_PORT_ERR.0, "PORT_ERR"),
        (ibv_event_type::IBV_EVENT_LID_CHANGE.0, "LID_CHANGE"),
        (ibv_event_type::IBV_EVENT_PKEY_CHANGE.0, "PKEY_CHANGE"),
        (ibv_event_type::IBV_EVENT_SM_CHANGE.0, "SM_CHANGE"),
        (ibv_event_type::IBV_EVENT_CLIENT_REREGISTER.0, "CLIENT_REREGISTER"),
        (ibv_event_type::IBV_EVENT_GID_CHANGE.0, "GID_CHANGE"),
    ];
    let name = names.iter().find(|(number, _)| *number == event.0);
    name.map_or_else(String::new, |(_, name)| name.to_ascii_lowercase())
}

#[test]
fn what_is_no_plan_is_refused_and_says_what_is() {
    refused("", "`` is no NAME=VALUE");
    refused("rnr", "`rnr` is no NAME=VALUE");
    refused("rnr=0.1,", "`` is no NAME=VALUE");
    refused("lost=1", "no fault is called lost: there are rnr, retry, loss, flush, delay");
    refused("rnr=0.1,rnr=0.2", "rnr is given twice");
    for p in ["2", "-0.1", "NaN", "", "1:5us"] {
        refused(&format!("rnr={p}"), "a probability is a number from 0 to 1");
    }
    refused("delay=2:5us", "a probability is a number from 0 to 1");
    for time in ["5", "us", "0.1:", "-1us", "1e3us", "infs", "nans", "3601s", "0.1:5m"] {
        refused(&format!("delay={time}"), "a time is a number and ns, us, ms or s, of at most");
    }
    for event in ["port_err", "port_err@", "port_err@5", "qp_fatal@1s", "PORT_ERR@1s"] {
        refused(&format!("event={event}"), "the events are device_fatal, port_active");
    }
    refused(&["event=sm_change@1s"; MAX_EVENTS + 1].join(","), "at most 64 events");
    for seed in ["", "-1", "x", "18446744073709551616"] {
        refused(&format!("seed={seed}"), "a seed is a number from 0 to");
    }
}
