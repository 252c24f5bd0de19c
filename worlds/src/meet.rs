//! Two ends meet: within the process, or over a listener to which strangers connect as well.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::thread::JoinHandle;
use host::{thread, time, world};
use rdma_conn::conn_core::handshake::{Frame, MAX_FRAME, Reason, decode};
use rdma_conn::error::ConnectError;
use rdma_conn::handshake::{HELLO_LIMIT, HandshakeError};
use rdma_conn::{
    Listener, RecvHalf as _, SendHalf as _, connect_sender, join_shared, receiver_shared,
};

use crate::case::WorldCase;
use crate::checks::{is_set_up_failure, slack, unnamed};
use crate::places::{Site, site_of};
use crate::setup::Tuned;

/// Time between two looks whether an initiator has failed before it said anything.
const LOOK: Duration = Duration::from_millis(20);

/// The receiver of a case at the first of its sites, with the pool of its buffers, if there is memory
/// for it.
pub(crate) fn inbox<P: Tuned>(
    case: &WorldCase,
    sites: &[Site],
) -> Option<(P::Receiver, Option<P::Pool>)> {
    let (device, senders) = (&sites[0].device, case.senders.len() as u32);
    let config = P::config(&case.settings, senders);
    let made = P::pool(device, &case.settings, senders).and_then(|pool| {
        let inbox = receiver_shared::<P>(device, &config, senders, pool.as_ref())?;
        Ok((inbox, pool))
    });
    match made {
        Ok(made) => Some(made),
        Err(e) if case.short_one_in > 0 && is_set_up_failure(&e) => {
            world::note(|| format!("there is no receiver: {}", unnamed(&e)));
            None
        }
        Err(e) => panic!("a receiver: {e}"),
    }
}

/// Connects the senders of a case with their receiver, and has each started by `start`, which gets
/// its number and its site. Returns the threads of those that have connected: of the first ones.
pub(crate) fn start_senders<P: Tuned>(
    (inbox, pool): (&mut P::Receiver, Option<&P::Pool>),
    case: &WorldCase,
    sites: &[Site],
    count: usize,
    start: impl Fn(usize, P::Sender, &Site) -> JoinHandle<()>,
) -> Vec<JoinHandle<()>> {
    let meeting = SenderMeeting::<P>::for_case(case);
    let (mut connected, mut threads) = (Vec::new(), Vec::new());
    let mut start_all = |connected: &mut Vec<(usize, P::Sender, &Site)>| {
        threads.extend(connected.drain(..).map(|(at, sender, far)| start(at, sender, far)));
    };
    for at in 0..count {
        // Those that follow one that does not connect would have its number.
        let Some((sender, far)) = meeting.sender((&mut *inbox, pool), case, sites, at) else {
            break;
        };
        connected.push((at, sender, far));
        // During a shortage that ends, none begins: it could fail of it.
        if case.short_one_in == 0 || case.short_to_the_end {
            start_all(&mut connected);
        }
    }
    if !case.short_to_the_end {
        world::here(|here| here.refuse_memory(0));
    }
    start_all(&mut connected);
    threads
}

/// Connects the senders of a case with their receiver.
enum SenderMeeting<P: Tuned> {
    Within,
    Over { listener: Listener<P>, _strangers: Vec<TcpStream> },
}

impl<P: Tuned> SenderMeeting<P> {
    fn for_case(case: &WorldCase) -> SenderMeeting<P> {
        let Some(strangers) = case.strangers else { return SenderMeeting::Within };
        let listener = Listener::bind("127.0.0.1:0").expect("a port");
        let mut connected = connect_strangers(listener.local_addr(), strangers.count);
        if strangers.are_awaited {
            outlast(&listener, case, &mut connected);
        }
        SenderMeeting::Over { listener, _strangers: connected }
    }

    /// Connects a sender, and returns it with its site; `None` if the case explains that it does
    /// not connect.
    fn sender<'s>(
        &self,
        inbox: (&mut P::Receiver, Option<&P::Pool>),
        case: &WorldCase,
        sites: &'s [Site],
        at: usize,
    ) -> Option<(P::Sender, &'s Site)> {
        let (near, far) = (&sites[0], site_of(case, sites, at));
        let config = P::config(&case.settings, case.senders.len() as u32);
        let may_not_connect = case.requests_may_fail() || case.short_one_in > 0 || case.may_die(at);
        match self.join(inbox, (near, far), &config) {
            Ok(sender) => Some((sender, far)),
            Err(e) if may_not_connect && is_set_up_failure(&e) => {
                world::note(|| format!("sender {at} did not connect: {}", unnamed(&e)));
                None
            }
            Err(e) => panic!("sender {at} does not connect: {e}"),
        }
    }

    fn join(
        &self,
        (inbox, pool): (&mut P::Receiver, Option<&P::Pool>),
        (near, far): (&Site, &Site),
        config: &P::Config,
    ) -> Result<P::Sender, ConnectError> {
        let SenderMeeting::Over { listener, .. } = self else {
            return join_shared::<P>(inbox, pool, &near.device, &far.device, config);
        };
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let dial = || {
                let connected = connect_sender::<P>(listener.local_addr(), &far.device, config);
                has_ended.store(true, Ordering::Relaxed);
                connected
            };
            let dialing = far.run(|| scope.spawn(dial)).expect("a thread");
            let accepted = loop {
                match listener.next_timeout(LOOK) {
                    Ok(Some(incoming)) => {
                        let accepted =
                            incoming.accept_into_shared(inbox, pool, &near.device, config);
                        break accepted.map(drop);
                    }
                    Ok(None) if has_ended.load(Ordering::Relaxed) => break Ok(()),
                    Ok(None) => {}
                    Err(e) => world::note(|| format!("a stranger is refused: {}", unnamed(&e))),
                }
            };
            let connected = dialing.join().expect("no panic");
            accepted.and(connected)
        })
    }
}

/// Strangers, which connect to a listener.
#[expect(clippy::disallowed_methods, reason = "the backlog answers")]
pub(crate) fn connect_strangers(listener: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |number: usize| {
        let mut stream = TcpStream::connect(listener).expect("a backlog");
        // The second one says something, and never all.
        stream.write_all(&b"RDMA"[..4 * (number % 2)]).expect("a buffer");
        stream
    };
    (0..count).map(connect).collect()
}

/// All senders of a case have gone: others get the shares of its pool that they had.
pub(crate) fn expect_shares<P: Tuned>(case: &WorldCase, sites: &[Site], pool: &P::Pool) {
    let (near, senders) = (&sites[0].device, case.senders.len());
    let config = P::config(&case.settings, senders as u32);
    let mut inbox = receiver_shared::<P>(near, &config, senders as u32, pool).expect("a receiver");
    let joined: Vec<P::Sender> = (0..senders)
        .map(|at| {
            let far = &site_of(case, sites, at).device;
            join_shared::<P>(&mut inbox, pool, near, far, &config).expect("its share")
        })
        .collect();
    for sender in joined {
        sender.abort();
    }
    inbox.abort();
}

/// Strangers that are silent, or say half a Hello, are refused when their time is up, and hear of it.
fn outlast<P: Tuned>(listener: &Listener<P>, case: &WorldCase, strangers: &mut [TcpStream]) {
    let start = time::now();
    for _ in &*strangers {
        let next = listener.next_timeout(2 * HELLO_LIMIT).map(|incoming| incoming.is_some());
        let is_late = matches!(next, Err(ConnectError::Handshake(HandshakeError::TimedOut(_))));
        assert!(is_late, "a stranger: {next:?}");
    }
    let took = time::since(start);
    assert!(took <= HELLO_LIMIT + slack(case), "strangers were refused after {took:?}");
    strangers.iter_mut().for_each(expect_refusal);
}

/// A stranger was refused, and hears of it.
pub(crate) fn expect_refusal(stranger: &mut TcpStream) {
    let mut heard = [0; MAX_FRAME];
    let bytes = stranger.read(&mut heard).expect("what was written before");
    let frame = decode(&heard[..bytes]).expect("a frame").frame;
    let Frame::Refuse(refusal) = frame else { panic!("a stranger heard {frame:?}") };
    assert_eq!(refusal.reason, Reason::PROTOCOL);
}
