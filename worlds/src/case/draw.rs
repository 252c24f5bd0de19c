//! Drawing cases from seeds.

use clap::ValueEnum as _;
use host::random::Random;

use super::{
    BufferKind, CaseFaults, CaseNetwork, CaseProtocol, DeviceKind, FOREVER_US, Form, GENTLE, MILD,
    ProcessKill, ProcessStop, RecvStep, SendStep, SenderEnding, Settings, Strangers, WaitKind,
    WorldCase, timeout,
};

/// The smallest ring.
const PAGE: u32 = 4096;
/// The longest keepalive interval that passes in a world: where threads poll, time takes steps.
const LONG_MS: u64 = 100;
/// A keepalive interval in which no world ends: nothing hides a lost wake-up.
const NEVER_MS: u64 = 86_400_000;

impl WorldCase {
    /// The case of a seed; of one connection and one place, if they are given.
    pub fn draw(
        seed: u64,
        connection: Option<CaseProtocol>,
        place: Option<DeviceKind>,
    ) -> WorldCase {
        let mut random = Random::new(seed ^ 0x05ee_d0fa_ca5e);
        let connection = connection.unwrap_or_else(|| random.pick(CaseProtocol::value_variants()));
        let place = place.unwrap_or_else(|| random.pick(DeviceKind::value_variants()));
        let mut settings = settings(&mut random);
        let has_ring =
            matches!(connection, CaseProtocol::BufferedRead | CaseProtocol::BufferedWrite);
        if has_ring && random.one_in(3) {
            settings.message_bytes = random.pick(&[PAGE / 2 - 8, PAGE - 8]);
        }
        let faults =
            if place == DeviceKind::Faulty { faults(&mut random) } else { CaseFaults::default() };
        let is_wired = place == DeviceKind::Wired;
        if is_wired {
            // The shortest one that the device takes.
            settings.timeout = 14;
        }
        let is_pair = connection != CaseProtocol::Multicast;
        let network = if is_wired {
            network(&mut random, &settings, is_pair)
        } else {
            CaseNetwork::default()
        };
        let senders = 1 + random.below(3) as usize;
        let steps = 1 + random.below(24);
        let mut case = WorldCase {
            seed,
            connection,
            form: Form::Messages,
            place,
            switch_one_in: random.pick(&[1, 2, 4, 16, 64]),
            stall_one_in: random.pick(&[0, 0, 0, 8, 32]),
            stall_us: random.pick(&[10, 1_000, 50_000]),
            jump_one_in: 0,
            jump_us: 0,
            short_one_in: 0,
            short_to_the_end: false,
            short_posts_one_in: 0,
            spurious_one_in: 0,
            faults,
            network,
            settings,
            senders: (0..senders)
                .map(|_| (0..steps).map(|_| send_step(&mut random, &settings)).collect())
                .collect(),
            ends: (0..senders)
                .map(|_| if random.one_in(5) { SenderEnding::Drop } else { SenderEnding::Close })
                .collect(),
            receiver: (0..2 * steps).map(|_| recv_step(&mut random, &settings)).collect(),
            receiver_is_dropped: random.one_in(8),
            sender_processes: 0,
            kill: None,
            stop: None,
            strangers: None,
        };
        if place == DeviceKind::Process {
            let processes = 1 + random.below(senders as u64) as usize;
            // Each member of a group is in a process of its own.
            let is_group = connection == CaseProtocol::Multicast;
            case.sender_processes = if is_group { senders } else { processes };
            let processes = 1 + case.sender_processes as u64;
            let some_of_them = |random: &mut Random| {
                let latest = random.pick(&[50, 1_000, 20_000, 1_000_000]);
                (random.below(processes) as usize, 1 + random.below(latest))
            };
            if random.one_in(4) {
                let (process, at_us) = some_of_them(&mut random);
                case.kill = Some(ProcessKill { process, at_us });
            }
            if random.one_in(4) {
                let (process, at_us) = some_of_them(&mut random);
                case.stop = Some(ProcessStop {
                    process,
                    at_us,
                    for_us: random.pick(&[100, 10_000, 300_000]),
                });
            }
        }
        if random.one_in(8) {
            // Shorter than the shortest timeout of a device.
            (case.jump_one_in, case.jump_us) =
                (random.pick(&[500, 5_000]), random.pick(&[10, 100, 500]));
            if is_wired && is_pair && random.one_in(2) {
                (case.jump_one_in, case.jump_us) = (5_000, 20_000);
            }
        }
        if connection != CaseProtocol::Multicast {
            case.form = match random.below(8) {
                0 => Form::Bytes,
                1 => Form::Futures,
                _ => Form::Messages,
            };
        }
        if case.form == Form::Bytes {
            case.senders.truncate(1);
            case.ends.truncate(1);
        }
        if is_pair {
            add_pair_faults(&mut case, &mut random);
        }
        if random.one_in(8) {
            case.short_one_in = random.pick(&[30, 100, 300, 1_000]);
        }
        if random.one_in(8) {
            case.short_posts_one_in = random.pick(&[2, 10, 30, 300]);
        }
        if random.one_in(8) {
            let (count, are_awaited) = (random.below(4) as usize, random.one_in(2));
            case.strangers = Some(Strangers { count, are_awaited });
        }
        if case.stop.is_some() && case.strangers.is_none() {
            // Ends that meet within a process have their devices' threads there, too.
            case.strangers = Some(Strangers { count: 0, are_awaited: false });
        }
        let is_tried_long = case.short_one_in > 0 || case.stop.is_some();
        if is_wired && is_tried_long && case.settings.wait == WaitKind::Spin {
            // A request to an end that was given up, or stands still, is tried for half a second:
            // many polls.
            case.settings.wait = WaitKind::Adaptive;
        }
        if is_wired || case.stall_one_in > 0 {
            // An end's last word is said within this: it may have to be sent again, or wait for a
            // processor.
            case.settings.linger_ms = case.settings.linger_ms.max(1000);
        }
        if connection == CaseProtocol::SendRecv {
            use BufferKind::{Own, Pool, Uncontrolled};
            case.settings.buffers =
                random.pick(&[Own, Own, Own, Own, Pool, Pool, Pool, Uncontrolled]);
        }
        let closes = case.ends.iter().all(|end| *end == SenderEnding::Close)
            && !case.receiver_is_dropped
            && case.kill.is_none()
            && case.short_one_in == 0
            && case.settings.buffers != BufferKind::Uncontrolled;
        if matches!(case.place, DeviceKind::Faulty | DeviceKind::Wired) || !closes {
            // An end that could not be said within the linger is found by a probe alone.
            case.settings.keepalive_ms = case.settings.keepalive_ms.min(LONG_MS);
        }
        case.short_to_the_end = case.short_one_in > 0 && random.one_in(2);
        case
    }
}

/// Faults that groups do not have: waits that end early, faults that last longer than the retries,
/// refused keys, and a machine that is stopped for a while.
fn add_pair_faults(case: &mut WorldCase, random: &mut Random) {
    /// Thousandths of requests, so that one of 36 is struck seven times in a row.
    const OFTEN: u16 = 600;
    if random.one_in(8) {
        case.spurious_one_in = random.pick(&[3, 30]);
    }
    if case.place == DeviceKind::Faulty && case.stall_one_in == 0 {
        match random.below(12) {
            0 => case.faults.rnr = OFTEN,
            1 => case.faults.lost_response = OFTEN,
            2 => case.faults.access = 1 + random.below(4) as u16,
            _ => {}
        }
    }
    if case.place == DeviceKind::Wired && random.one_in(8) {
        let CaseNetwork { loss, corrupt, partition_us, .. } = case.network;
        let is_calm = loss + corrupt == 0 && partition_us == 0 && case.stall_one_in == 0;
        // Shorter than the retries, with what else takes them.
        let longest = if is_calm { 200_000 } else { 10_000 };
        case.stop = Some(ProcessStop {
            process: random.below(2) as usize,
            at_us: 1 + random.below(100_000),
            for_us: random.pick(&[100, 10_000, longest]),
        });
    }
}

fn settings(random: &mut Random) -> Settings {
    let window = random.pick(&[1, 2, 3, 4, 7, 8, 16]);
    let wait = random.pick(&[
        WaitKind::Spin,
        WaitKind::Block,
        WaitKind::Block,
        WaitKind::Adaptive,
        WaitKind::Adaptive,
    ]);
    // Polling for a long time takes many steps.
    let keepalives: &[u64] =
        if wait == WaitKind::Spin { &[1, 10] } else { &[1, 10, LONG_MS, NEVER_MS] };
    Settings {
        window,
        message_bytes: random.pick(&[1, 8, 40, 64, 100, 1000, 4000]),
        batch: if random.one_in(2) { 1 } else { 1 + random.below(window.into()) as u32 },
        signal_every: if random.one_in(2) { 0 } else { 1 + random.below(3) as u32 },
        other_way: random.one_in(2),
        wait,
        keepalive_ms: random.pick(keepalives),
        linger_ms: random.pick(&[1, 50, 1000]),
        timeout: timeout(),
        buffers: BufferKind::Own,
    }
}

/// A length at an edge: nothing, one byte, the longest message, what lies beside it. Or one of which
/// two take as much of a ring as the longest message, with 8 bytes for each, or are too long for that.
fn length(random: &mut Random, settings: &Settings) -> u32 {
    let most = settings.message_bytes;
    let half = ((most + 8) / 2).saturating_sub(8);
    match random.below(10) {
        0 => 0,
        1 => 1,
        2 => most,
        3 => most.saturating_sub(1),
        4 => most + 1,
        5 => half,
        6 => half + 1,
        _ => random.below(u64::from(most) + 1) as u32,
    }
}

/// A time in microseconds: short ones, and some about that of a probe.
fn time_us(random: &mut Random, settings: &Settings) -> u64 {
    let keepalive = settings.keepalive_ms.min(LONG_MS) * 1000;
    random.pick(&[0, 1, 50, 300, 2_000, keepalive / 2, keepalive + 1, 3 * keepalive])
}

fn send_step(random: &mut Random, settings: &Settings) -> SendStep {
    let bytes = length(random, settings);
    match random.below(16) {
        0..5 => SendStep::Send(bytes),
        5..8 => SendStep::TrySend(bytes),
        8 => SendStep::SendWithin(bytes, time_us(random, settings)),
        9 => SendStep::Batch(bytes, 1 + random.below(u64::from(settings.window) + 2) as u32),
        10 => SendStep::Reserve(bytes, !random.one_in(4)),
        11 => SendStep::Flush,
        12 => SendStep::Ask,
        13 => SendStep::WaitAll(time_us(random, settings)),
        _ => SendStep::Sleep(time_us(random, settings)),
    }
}

fn recv_step(random: &mut Random, settings: &Settings) -> RecvStep {
    match random.below(16) {
        0..6 => RecvStep::Recv(time_us(random, settings)),
        6..9 => RecvStep::TryRecv,
        9 => RecvStep::Each,
        10 | 11 => RecvStep::Free(random.below(8) as u32),
        12 => RecvStep::FreeElsewhere(random.below(8) as u32),
        13 => RecvStep::FreeAll,
        _ => RecvStep::Sleep(time_us(random, settings)),
    }
}

fn faults(random: &mut Random) -> CaseFaults {
    let mut rate = |most: u64, rare: bool| {
        let strikes = if rare { random.one_in(4) } else { random.one_in(2) };
        if strikes { random.below(most) as u16 } else { 0 }
    };
    CaseFaults {
        delay: rate(200, false),
        rnr: rate(MILD.into(), false),
        lost_response: rate(MILD.into(), false),
        late_read: rate(200, false),
        qp_death: rate(4, true),
        access: 0,
    }
}

/// A network: without faults one time in three, and one time in six such that requests may fail. One
/// time in six it falls silent between the ends of a pair.
fn network(random: &mut Random, settings: &Settings, is_pair: bool) -> CaseNetwork {
    let tries_us = settings.retry_time().as_micros() as u64;
    let calm = CaseNetwork {
        delay_us: random.pick(&[0, 1, 20, 200]),
        mtu: random.pick(&[600, 1500, 1500, 9000]),
        queue_kib: random.pick(&[16, 208, 208]),
        ..CaseNetwork::default()
    };
    let (most, cut_us) = match random.below(6) {
        0 | 1 => return calm,
        2 if settings.wait != WaitKind::Spin => (15 * GENTLE, 2 * tries_us),
        3 if is_pair && settings.wait != WaitKind::Spin => {
            let partition_at_us = random.pick(&[0, 100, 1_000, 10_000, 300_000]);
            return CaseNetwork { partition_at_us, partition_us: FOREVER_US, ..calm };
        }
        // Threads that poll take many steps to come to the end of a long outage.
        _ if settings.wait == WaitKind::Spin => (GENTLE, 20_000),
        _ => (GENTLE, tries_us / 4),
    };
    let mut rate = |most: u16| if random.one_in(2) { random.below(most.into()) as u16 } else { 0 };
    let (loss, corrupt) = (rate(most), rate(most));
    let (repeat, reorder, congestion) = (rate(200), rate(200), rate(200));
    let partition_us = if random.one_in(3) { random.below(cut_us) } else { 0 };
    let partition_at_us = random.pick(&[0, 100, 1_000, 10_000]);
    CaseNetwork {
        loss,
        corrupt,
        repeat,
        reorder,
        congestion,
        partition_us,
        partition_at_us,
        ..calm
    }
}
