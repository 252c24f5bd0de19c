//! `ibv_advise_mr`: bringing pages of on-demand regions before they are used.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use rustix::io::Errno;
use verbs_sys::ib_uverbs_advise_mr_advice as Advice;
use verbs_sys::*;

use crate::errno;
use crate::memory::mr_table::{LOCAL_WRITE, MW, MrTable, ON_DEMAND};
use crate::memory::on_demand::bring_at;
use crate::objects::quiescence;
use crate::objects::state::Pd;

/// The only flag: the pages are there when the call returns, as they always are here.
const FLUSH: u32 = 1;

/// The pages are brought within the call. Errors are those of the manual page, and of mlx5 where it
/// leaves a choice: a key that is no on-demand region's is `ENOENT`, and another advice
/// `EOPNOTSUPP`.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ib_uverbs_advise_mr_advice,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    // SAFETY: NULL, or a domain of ours.
    errno::code(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        let brings = match advice {
            Advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => Some(false),
            Advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => Some(true),
            // What is in memory now, this device finds there.
            Advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => None,
            _ => return Err(errno::EOPNOTSUPP),
        };
        if flags & !FLUSH != 0 || num_sge == 0 || sg_list.is_null() {
            return Err(errno::EINVAL);
        }
        // SAFETY: the caller's list has as many entries.
        let list = unsafe { core::slice::from_raw_parts(sg_list, num_sge as usize) };
        let mrs = &pd.context.device.mrs;
        let is_written = brings == Some(true);
        // Nothing is brought unless all can be.
        list.iter().try_for_each(|sge| find(mrs, pd.id, sge, is_written).map(drop))?;
        let Some(is_written) = brings else { return Ok(()) };
        for sge in list {
            let addr = find(mrs, pd.id, sge, is_written)?;
            let brought = bring_at(addr as usize, sge.length as usize, is_written);
            brought.map_err(|_gone| errno::EFAULT)?;
        }
        Ok(())
    }))
}

/// Returns the address of a piece of an on-demand region in this process.
fn find(mrs: &MrTable, pd: u32, sge: &ibv_sge, is_written: bool) -> Result<u64, Errno> {
    let _look = quiescence::look();
    let slot = mrs.slot(sge.lkey).ok_or(errno::ENOENT)?;
    // Acquire: the rest was written before the key.
    if sge.lkey == 0 || slot.key.load(Ordering::Acquire) != sge.lkey {
        return Err(errno::ENOENT);
    }
    let access = slot.access.load(Ordering::Relaxed);
    if access & MW != 0 {
        return Err(errno::EINVAL);
    }
    if access & ON_DEMAND == 0 {
        return Err(errno::ENOENT);
    }
    let is_permitted = !is_written || access & LOCAL_WRITE != 0;
    if slot.pd.load(Ordering::Relaxed) != pd || !is_permitted {
        return Err(errno::EPERM);
    }
    let region = slot.published();
    let offset = region.offset(sge.addr, sge.length.into()).ok_or(errno::EFAULT)?;
    Ok(region.addr.wrapping_add(offset))
}
