use super::*;
use crate::model::CONNECTX5;

/// Rows where a model explains what it should not, or does not what it should.
fn wrong(model: &DeviceModel) -> Vec<String> {
    let is_wrong = |row: &&Headline| row.is_explained(row.predicted(model)) != row.why.is_empty();
    let shown = |row: &Headline| {
        let (value, sign) = (row.predicted(model), row.compare.sign());
        let Headline { source, what, unit, paper, .. } = row;
        format!("{source}, {what}: {sign}{paper} {unit}, predicted {value}")
    };
    HEADLINES.iter().filter(is_wrong).map(shown).collect()
}

#[test]
fn headlines_are_within_15_percent_or_say_why_not() {
    let wrong = wrong(&CONNECTX5);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(HEADLINES.iter().all(|row| row.predicted(&CONNECTX5).is_finite()));
    let differ = HEADLINES.iter().filter(|row| !row.why.is_empty()).count();
    assert!(differ <= 3, "{differ}");
}

#[test]
fn an_inequality_is_no_equality() {
    let times = |compare| row(SR, "", (compare, 5.0, "times"), Prediction, Formula(|_| 0.0));
    assert!(times(AtLeast).is_explained(29.0) && !times(AtLeast).is_explained(4.9));
    assert!(times(AtMost).is_explained(0.1) && !times(AtMost).is_explained(5.1));
    assert!(times(About).is_explained(5.7) && !times(About).is_explained(29.0));
    assert!([About, AtLeast, AtMost].iter().all(|c| !times(*c).is_explained(f64::NAN)));
}

/// Each parameter has a part in a headline: a wrong one is found.
#[test]
fn a_wrong_parameter_is_found() {
    type Plant = fn(&mut DeviceModel);
    let wrongs: [(&str, Plant); 18] = [
        ("o_snd", |m| m.o_snd.one *= 2.0),
        ("o_snd, batched", |m| m.o_snd.listed *= 8.0),
        ("o_rcv", |m| m.o_rcv.one *= 2.0),
        ("o_rcv, batched", |m| m.o_rcv.listed *= 3.0),
        ("o_post", |m| m.o_post.one *= 10.0),
        ("o_post, batched", |m| m.o_post.listed *= 10.0),
        ("o_small", |m| m.o_small *= 2.0),
        ("o_nic", |m| m.o_nic *= 2.0),
        ("o_queue", |m| m.o_queue *= 2.0),
        ("o_srq", |m| m.o_srq *= 2.0),
        ("L", |m| m.latency *= 2.0),
        ("g_fix", |m| m.g_fix *= 2.0),
        ("g_read", |m| m.g_read *= 10.0),
        ("reads", |m| m.reads /= 10.0),
        ("G", |m| m.byte *= 2.0),
        ("G, alone", |m| m.byte_alone *= 10.0),
        ("requests", |m| m.requests *= 2.0),
        ("both ways", |m| m.both_ways *= 2.0),
    ];
    for (name, plant) in wrongs {
        let mut model = CONNECTX5;
        plant(&mut model);
        assert!(!wrong(&model).is_empty(), "{name}");
    }
}
