//! The list of devices of one provider.

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use verbs_sys::{Table, ibv_context, ibv_device};

use crate::errno::Errno;
use crate::error::{ListDevicesError, OpenDeviceError};
use crate::object::pointer::ObjectPtr;

/// The devices behind `table`. A kernel without RDMA has none, which is no error.
///
/// ```
/// let devices = verbs_safe::devices(soft_rnic::table())?;
/// assert!(devices.iter().any(|device| device.name() == "soft0"));
/// # Ok::<(), verbs_safe::ListDevicesError>(())
/// ```
///
/// # Errors
/// [`ListDevicesError`] with the system's reason.
pub fn devices(table: Table) -> Result<Vec<Device>, ListDevicesError> {
    let mut count: c_int = 0;
    // SAFETY: `count` is writable.
    let array = match ObjectPtr::new(unsafe { (table.get_device_list)(&mut count) }) {
        Ok(array) => array,
        Err(Errno::ENOSYS) => return Ok(Vec::new()),
        Err(errno) => return Err(ListDevicesError { errno }),
    };
    let list = Arc::new(DeviceList { table, array });
    let device = |i| {
        // SAFETY: the array has `count` entries, and then a NULL.
        let raw = unsafe { *array.as_ptr().add(i) };
        ObjectPtr::new(raw).ok().map(|raw| Device::new(raw, list.clone()))
    };
    Ok((0..usize::try_from(count).unwrap_or(0)).filter_map(device).collect())
}

/// The array that libibverbs handed out; the devices in it live as long.
struct DeviceList {
    table: Table,
    array: ObjectPtr<*mut ibv_device>,
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: this table returned the array; every `Device` holds the list, so none is left.
        unsafe { (self.table.free_device_list)(self.array.as_ptr()) }
    }
}

/// A device that can be opened.
#[derive(Clone)]
pub struct Device {
    raw: ObjectPtr<ibv_device>,
    list: Arc<DeviceList>,
    name: String,
    guid: u64,
}

impl Device {
    fn new(raw: ObjectPtr<ibv_device>, list: Arc<DeviceList>) -> Device {
        // SAFETY: the device is alive as long as the list; its name is a C string.
        let (name, guid) = unsafe {
            let name = (list.table.get_device_name)(raw.as_ptr());
            let name = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy());
            let guid = (list.table.get_device_guid)(raw.as_ptr());
            (name.map(|n| n.into_owned()), guid)
        };
        Device { raw, list, name: name.unwrap_or_default(), guid: u64::from_be(guid) }
    }

    /// The name that users know: `mlx5_0`, `rxe0`, `soft0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node GUID, in host order.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }

    pub(crate) fn table(&self) -> Table {
        self.list.table
    }

    /// Opens a context that the caller closes, while it keeps this device.
    pub(crate) fn open_raw(&self) -> Result<ObjectPtr<ibv_context>, OpenDeviceError> {
        // SAFETY: the device is alive, because the list is.
        let raw = unsafe { (self.list.table.open_device)(self.raw.as_ptr()) };
        ObjectPtr::new(raw).map_err(|errno| self.not_opened(errno))
    }

    pub(crate) fn not_opened(&self, errno: Errno) -> OpenDeviceError {
        OpenDeviceError { device: self.name.clone(), errno }
    }
}

debug_shows!(Device: name);
