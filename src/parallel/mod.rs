//! Whole snapshots on several threads. Only this module knows rayon; what is written does not depend on the threads.

mod copy;
mod encode;
pub(crate) mod links;
mod pool;
mod restore;
mod single;

pub use copy::copy_changed;
pub use encode::{SnapshotEncoder, Summary, Tensor, TensorBase};
pub use links::find_links;
pub use pool::Pool;
pub use restore::{Chain, Failure, Layer, Output, Segment, Selection, Shape, Window, needed, pieces, place};
pub use single::decode_record;
