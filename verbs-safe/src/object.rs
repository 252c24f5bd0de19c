//! Contexts and their objects: completion queues and their channels, address handles, events. The
//! module does not depend on registered memory or on queue pairs.

pub(crate) mod ah;
pub(crate) mod backlog;
pub(crate) mod channel;
pub(crate) mod completion;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod gid;
pub(crate) mod grh;
pub(crate) mod pointer;
pub(crate) mod tag;
