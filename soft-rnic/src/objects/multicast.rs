//! Multicast groups: which queue pairs are attached to which.
//!
//! As in the kernel, what is attached is a queue pair to a GID and a LID, and each pair of these
//! once. RoCE has no LIDs: messages name a group by its GID alone, and a queue pair is a member as
//! long as it is attached with any LID.

use std::sync::Arc;

use rustix::io::Errno;

use crate::objects::state::{Device, MulticastGroups, Qp};
use crate::peers::process::directory::GroupBit;
use crate::queues::address::{GidBytes, is_multicast};
use crate::queues::qp_state::{QpTransport, QueuePairState};
use crate::{errno, limits};

impl MulticastGroups {
    /// Attaches a queue pair; false, and nothing changes, if it is attached already.
    fn attach(&mut self, qp: &Arc<Qp>, gid: GidBytes, lid: u16) -> Result<bool, Errno> {
        let attached = self.attached.get(&qp.num).map_or(&[][..], Vec::as_slice);
        if attached.contains(&(gid, lid)) {
            return Ok(false);
        }
        if attached.len() >= limits::MAX_ATTACH_PER_QP {
            return Err(errno::ENOMEM);
        }
        if !attached.iter().any(|(known, _)| *known == gid) {
            self.join(qp, gid)?;
        }
        self.attached.entry(qp.num).or_default().push((gid, lid));
        Ok(true)
    }

    /// Makes a queue pair a member, which it is not.
    fn join(&mut self, qp: &Arc<Qp>, gid: GidBytes) -> Result<(), Errno> {
        let members = self.members.get(&gid).map_or(&[][..], |members| &members[..]);
        let is_new = members.is_empty();
        if members.len() >= limits::MAX_MCAST_QP_ATTACH
            || (is_new && self.members.len() >= limits::MAX_MCAST_GRP)
        {
            return Err(errno::ENOMEM);
        }
        let members = members.iter().chain([qp]).cloned().collect();
        self.members.insert(gid, members);
        Ok(())
    }

    /// Ends an attachment; `EINVAL` if there is none.
    fn detach(&mut self, qpn: u32, gid: GidBytes, lid: u16) -> Result<(), Errno> {
        let attached = self.attached.get_mut(&qpn).ok_or(errno::EINVAL)?;
        let at = attached.iter().position(|known| *known == (gid, lid)).ok_or(errno::EINVAL)?;
        attached.swap_remove(at);
        let stays = attached.iter().any(|(known, _)| *known == gid);
        if attached.is_empty() {
            self.attached.remove(&qpn);
        }
        if !stays {
            self.leave(qpn, gid);
        }
        Ok(())
    }

    /// A member is none any more.
    fn leave(&mut self, qpn: u32, gid: GidBytes) {
        let Some(members) = self.members.get_mut(&gid) else { return };
        *members = members.iter().filter(|member| member.num != qpn).cloned().collect();
        if members.is_empty() {
            self.members.remove(&gid);
        }
    }

    /// Ends all attachments of a queue pair, which was in these groups.
    fn forget(&mut self, qpn: u32) -> Vec<GidBytes> {
        let attached = self.attached.remove(&qpn).unwrap_or_default();
        let groups: Vec<GidBytes> = attached.into_iter().map(|(gid, _)| gid).collect();
        groups.iter().for_each(|gid| self.leave(qpn, *gid));
        groups
    }
}

impl Device {
    /// The members of a group, as they are now.
    pub(crate) fn members(&self, gid: &GidBytes) -> Arc<[Arc<Qp>]> {
        self.groups.read().members.get(gid).cloned().unwrap_or_default()
    }

    /// Tells other processes whether there are members here of a group, or of one that the filter
    /// cannot tell from it.
    fn publish_group(&self, groups: &MulticastGroups, gid: &GidBytes) {
        let Some(peers) = &self.peers else { return };
        let bit = GroupBit::of(gid);
        let is_there = groups.members.contains_key(gid)
            || groups.members.keys().any(|other| GroupBit::of(other) == bit);
        peers.publish_group(bit, is_there);
    }
}

impl Qp {
    /// Checks that its transport, and the address, are those of multicast groups.
    pub(crate) fn can_attach_to(&self, gid: &GidBytes) -> Result<(), Errno> {
        let is_group = is_multicast(gid) && self.transport == QpTransport::Ud;
        if is_group { Ok(()) } else { Err(errno::EINVAL) }
    }

    /// Attaches it to a multicast group; false if it is. The errors are the kernel's.
    pub(crate) fn attach_to_group(self: &Arc<Qp>, gid: GidBytes, lid: u16) -> Result<bool, Errno> {
        self.can_attach_to(&gid)?;
        let device = &self.pd.context.device;
        let mut groups = device.groups.write();
        // One that is going to be destroyed forgets its attachments under the same lock, and later.
        if self.state() == QueuePairState::Destroyed {
            return Err(errno::EINVAL);
        }
        let is_new = groups.attach(self, gid, lid)?;
        device.publish_group(&groups, &gid);
        Ok(is_new)
    }

    /// Ends an attachment.
    pub(crate) fn detach_from_group(&self, gid: GidBytes, lid: u16) -> Result<(), Errno> {
        let device = &self.pd.context.device;
        let mut groups = device.groups.write();
        groups.detach(self.num, gid, lid)?;
        device.publish_group(&groups, &gid);
        Ok(())
    }

    /// Reports whether it is attached to any group.
    pub(crate) fn is_attached(&self) -> bool {
        self.transport == QpTransport::Ud
            && self.pd.context.device.groups.read().attached.contains_key(&self.num)
    }

    /// It is destroyed.
    pub(crate) fn leave_groups(&self) {
        if self.transport == QpTransport::Ud {
            let device = &self.pd.context.device;
            let left = {
                let mut groups = device.groups.write();
                let left = groups.forget(self.num);
                left.iter().for_each(|gid| device.publish_group(&groups, gid));
                left
            };
            self.leave_on_wire(&left);
        }
    }
}
