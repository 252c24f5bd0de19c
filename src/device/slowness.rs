//! Measurement of how much slower than a card the soft device's operations are on this machine.

use std::time::Duration;

use soft_rnic::CallCosts;
use verbs_safe::{
    CompletionBatch, ConnectAttr, CqConfig, QueuePair, QueuePairConfig, RecvSide, SendOp,
};

use super::{Device, DeviceError};

/// Requests of a list, and receives.
const LIST: u32 = 32;
/// Lists that are measured.
const ROUNDS: usize = 200;

impl Device {
    /// The least whole factor on a card's costs at which no call of the device takes longer than
    /// its cost.
    pub(super) fn slowness(&self, costs: &CallCosts) -> Result<f64, DeviceError> {
        let failed = |e: &dyn std::fmt::Display| self.error("measure its operations", e);
        let context = self.context();
        let cq = context.create_cq(CqConfig::new(4 * LIST)).map_err(|e| failed(&e))?;
        let recv = RecvSide::Own { slots: LIST, slot_bytes: 16 };
        let shape = QueuePairConfig {
            max_send_wr: LIST,
            send_slots: LIST,
            send_slot_bytes: 16,
            recv,
            ..QueuePairConfig::new(&cq, &cq)
        };
        let pair = self.pd().create_qp(&shape, ()).map_err(|e| failed(&e))?;
        let QueuePair { control, mut send, recv } = pair;
        let mut receives = recv.ok_or_else(|| failed(&"no receive side"))?;
        let gid = context.choose_gid(1, None).map_err(|e| failed(&e))?;
        let itself = control.endpoint(1, gid, 7).map_err(|e| failed(&e))?;
        let attr = ConnectAttr::new(gid.index as u8, 7);
        control.connect(&itself, &attr).map_err(|e| failed(&e))?;
        let mut batch = CompletionBatch::new(2 * LIST as usize);
        let mut slowest = Slowest::default();
        for round in 0..ROUNDS {
            // Alternately single requests and whole lists.
            let list = if round % 2 == 0 { 1 } else { LIST };
            let slots: Vec<u32> = (0..list).collect();
            slowest.time(costs.receive, list, || receives.post(&slots).map_err(|e| failed(&e)))?;
            for _ in 0..list {
                if let Some(slot) = send.next_slot() {
                    slot.fill(round as u8);
                }
                send.stage(SendOp::Send { len: 16 }, true).map_err(|e| failed(&e))?;
            }
            slowest.time(costs.post, list, || send.post().map(drop).map_err(|e| failed(&e)))?;
            let mut left = 2 * list;
            while left > 0 {
                let start = host::time::now();
                let polled = cq.poll(&mut batch).map_err(|e| failed(&e))? as u32;
                if polled > 0 {
                    slowest.took(costs.poll, polled, host::time::since(start));
                }
                left -= polled.min(left);
                for completion in batch.drain() {
                    if completion.queue_id() == send.queue_id() {
                        send.retire(&completion).map_err(|e| failed(&e))?;
                    } else {
                        drop(receives.take(completion).map_err(|e| failed(&e))?);
                    }
                }
            }
        }
        Ok(slowest.factor())
    }
}

/// The times of operations, as multiples of what they cost.
#[derive(Default)]
struct Slowest(Vec<f64>);

impl Slowest {
    fn time<T, E>(
        &mut self,
        cost: [f64; 2],
        list: u32,
        operation: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let start = host::time::now();
        let done = operation();
        self.took(cost, list, host::time::since(start));
        done
    }

    fn took(&mut self, [call, each]: [f64; 2], list: u32, time: Duration) {
        self.0.push(time.as_nanos() as f64 / (call + f64::from(list) * each));
    }

    /// The factor that most of them need: other work of the machine slows down the rest. At most
    /// the largest factor that a device accepts.
    fn factor(mut self) -> f64 {
        self.0.sort_by(f64::total_cmp);
        let most = self.0.len() * 9 / 10;
        self.0.get(most).copied().unwrap_or(1.0).ceil().clamp(1.0, 1000.0)
    }
}

#[cfg(test)]
mod tests;
