//! The Python binding: arrays become slices without a copy, errors become exceptions, and the interpreter is released
//! while the core works. What Python sees of this is in `python/ckptz/_core.pyi`.

mod arrays;
mod copy;
mod decode;
mod encode;
mod errors;
mod hashes;
mod payload;
mod spec;

use pyo3::prelude::*;

/// The compiled core of ckptz. Private: `ckptz.codec` is its only user.
#[pymodule]
#[pyo3(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RecordError", module.py().get_type::<errors::RecordError>())?;
    module.add("ReadError", module.py().get_type::<errors::ReadError>())?;
    module.add("ChangedError", module.py().get_type::<errors::ChangedError>())?;
    module.add_class::<spec::Spec>()?;
    module.add_class::<encode::SnapshotEncoder>()?;
    module.add_class::<decode::Chain>()?;
    module.add_class::<decode::Window>()?;
    module.add_class::<payload::Payload>()?;
    module.add_class::<decode::Merge>()?;
    module.add_class::<hashes::Crc>()?;
    module.add_function(wrap_pyfunction!(copy::copy_changed, module)?)?;
    module.add_function(wrap_pyfunction!(encode::content_sums, module)?)?;
    module.add_function(wrap_pyfunction!(hashes::digest, module)?)?;
    module.add_function(wrap_pyfunction!(hashes::content_sum, module)?)?;
    module.add_function(wrap_pyfunction!(hashes::compress, module)?)?;
    module.add_function(wrap_pyfunction!(hashes::decompress, module)?)?;
    module.add_function(wrap_pyfunction!(decode::decode_record, module)?)?;
    module.add_function(wrap_pyfunction!(decode::describe, module)?)?;
    module.add_function(wrap_pyfunction!(decode::useless_records, module)?)?;
    module.add_function(wrap_pyfunction!(decode::predictions, module)?)?;
    Ok(())
}
