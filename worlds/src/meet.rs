//! Two ends meet: within the process, or over a listener to which strangers connect as well.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::{thread, time, world};
use rdma_conn::conn_core::handshake::{Frame, MAX_FRAME, Reason, decode};
use rdma_conn::error::ConnectError;
use rdma_conn::handshake::{HELLO_LIMIT, HandshakeError};
use rdma_conn::{Listener, connect_sender, join, receiver};

use crate::case::WorldCase;
use crate::checks::{slack, unnamed};
use crate::places::Site;
use crate::setup::Tuned;

/// Time between two looks whether an initiator has failed before it said anything.
const LOOK: Duration = Duration::from_millis(20);

/// The receiver of a case at the first of its sites, if there is memory for it.
pub(crate) fn inbox<P: Tuned>(case: &WorldCase, sites: &[Site]) -> Option<P::Receiver> {
    let senders = case.senders.len() as u32;
    match receiver::<P>(&sites[0].device, &P::config(&case.settings, senders), senders) {
        Ok(inbox) => Some(inbox),
        Err(e) if case.short_one_in > 0 => {
            world::note(|| format!("there is no receiver: {}", unnamed(&e)));
            None
        }
        Err(e) => panic!("a receiver: {e}"),
    }
}

/// Connects the senders of a case with their receiver.
pub(crate) enum SenderMeeting<P: Tuned> {
    Within,
    Over { listener: Listener<P>, _strangers: Vec<TcpStream> },
}

impl<P: Tuned> SenderMeeting<P> {
    pub(crate) fn for_case(case: &WorldCase) -> SenderMeeting<P> {
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
    pub(crate) fn sender<'s>(
        &self,
        inbox: &mut P::Receiver,
        case: &WorldCase,
        sites: &'s [Site],
        at: usize,
    ) -> Option<(P::Sender, &'s Site)> {
        let near = &sites[0];
        let far = sites.get(case.process_of(at)).or(sites.last()).unwrap_or(near);
        let config = P::config(&case.settings, case.senders.len() as u32);
        match self.join(inbox, (near, far), &config) {
            Ok(sender) => Some((sender, far)),
            Err(e) if case.may_fail() || case.may_die(at) => {
                world::note(|| format!("sender {at} did not connect: {}", unnamed(&e)));
                None
            }
            Err(e) => panic!("sender {at} does not connect: {e}"),
        }
    }

    fn join(
        &self,
        inbox: &mut P::Receiver,
        (near, far): (&Site, &Site),
        config: &P::Config,
    ) -> Result<P::Sender, ConnectError> {
        let SenderMeeting::Over { listener, .. } = self else {
            return join::<P>(inbox, &near.device, &far.device, config);
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
                        break incoming.accept_into(inbox, &near.device, config).map(drop);
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
pub(crate) fn connect_strangers(listener: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |number: usize| {
        let mut stream = TcpStream::connect(listener).expect("a backlog");
        // The second one says something, and never all.
        stream.write_all(&b"RDMA"[..4 * (number % 2)]).expect("a buffer");
        stream
    };
    (0..count).map(connect).collect()
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
