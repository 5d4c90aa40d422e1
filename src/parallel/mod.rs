//! Whole snapshots on several threads. Only this module knows rayon; what is written does not depend on the threads.

mod copy;
mod encode;
mod families;
mod large;
pub(crate) mod links;
mod outgoing;
mod pool;
mod restore;
mod screen;
mod siblings;
mod single;
mod small;
mod tensor;
mod watch;

pub use copy::copy_changed;
pub use encode::{Finished, SnapshotEncoder, Summary};
pub use families::Families;
pub use links::find_links;
pub use pool::Pool;
pub use restore::{Chain, Failure, Layer, Output, Segment, Selection, Shape, Source, Window, needed, pieces, place};
pub use siblings::{Known, find_families};
pub use single::decode_record;
pub use tensor::{Tensor, TensorBase};
pub use watch::sums_of;
