//! Chains and single records over NumPy arrays.

use super::arrays::{Bytes, element_type, readable, writable};
use super::encode::Predicted;
use super::errors::guarded;
use super::payload::{Borrowed, Stored};
use crate::error::Error;
use crate::header::{Base, Place, RecordHeader};
use crate::parallel::{self, Layer, Output, Pool, Segment, Selection, Shape};
use numpy::PyReadwriteArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

fn shapes_of(shapes: Vec<(u16, usize)>) -> PyResult<Vec<Shape>> {
    shapes.into_iter().map(|(number, elements)| Ok(Shape { element: element_type(number)?, elements })).collect()
}

/// The layers that lead to a snapshot.
#[pyclass(module = "ckptz._core", frozen)]
pub struct Chain(parallel::Chain);

/// A piece of a restore.
#[pyclass(module = "ckptz._core", frozen)]
pub struct Window(parallel::Window);

#[pymethods]
impl Window {
    /// What has to be read: (file, offset in its payload, length).
    #[getter]
    fn segments(&self) -> Vec<(usize, u64, usize)> {
        self.0.segments().iter().map(|s| (s.file, s.offset, s.length)).collect()
    }

    /// Which of these are better given as files.
    #[getter]
    fn apart(&self) -> Vec<bool> {
        self.0.segments().iter().map(Segment::is_read_apart).collect()
    }
}

/// A tensor, its first element wanted, the element after the last, and where they go.
type Wanted<'py> = (usize, usize, usize, Bound<'py, Bytes>);

/// A snapshot in a file: its record headers, the tensor of each record, the records that are not in the file, and what the
/// records are part of: 0 a full snapshot, 1 a delta, 2 a residual.
type Snapshot = (Vec<u8>, Vec<usize>, Vec<u32>, u8);

/// Reads the record headers of files. Errors name a layer, a number of `path`, where the snapshot is one.
fn parse_files(shapes: &[Shape], files: Vec<Vec<Snapshot>>, path: &[(usize, usize)]) -> PyResult<Vec<Vec<Layer>>> {
    let parse = |file: usize, number: usize, (headers, tensors, absent, place): Snapshot| {
        let layer = path.iter().position(|&at| at == (file, number)).or(path.iter().position(|at| at.0 == file));
        let parsed = Layer::parse(&headers, tensors, shapes).and_then(|mut parsed| {
            parsed.leave_out(&absent)?;
            let place = Place::of_number(place).ok_or(Error::Request("an unknown kind of snapshot"))?;
            parsed.headers().iter().try_for_each(|header| header.check_place(place))?;
            Ok(parsed)
        });
        parsed.map_err(|error| super::errors::exception(&error, layer, None))
    };
    let read = |(file, snapshots): (usize, Vec<Snapshot>)| {
        snapshots.into_iter().enumerate().map(|(number, snapshot)| parse(file, number, snapshot)).collect()
    };
    files.into_iter().enumerate().map(read).collect()
}

#[pymethods]
impl Chain {
    /// `shapes`: element type and elements of every tensor; `files`: the snapshots that each holds; `path`: file and number of
    /// each layer, oldest first; `every_layer`: needed is all that the layers hold.
    #[new]
    fn new(
        py: Python<'_>,
        shapes: Vec<(u16, usize)>,
        files: Vec<Vec<Snapshot>>,
        path: Vec<(usize, usize)>,
        every_layer: bool,
    ) -> PyResult<Self> {
        let shapes = shapes_of(shapes)?;
        let files = py.detach(|| guarded(|| parse_files(&shapes, files, &path)))?;
        Ok(Chain(py.detach(|| guarded(|| parallel::Chain::of_files(shapes, files, &path, every_layer)))?))
    }

    /// The length of each file's payload.
    fn payload_bytes(&self) -> Vec<u64> {
        self.0.payload_bytes().to_vec()
    }

    /// Whether any record of a layer has a predicted base.
    fn predicts(&self, layer: usize) -> bool {
        self.0.layers().get(layer).is_some_and(Layer::predicts)
    }

    /// Whether any record of a layer is coded in pairs of symbols.
    fn has_pairs(&self, layer: usize) -> bool {
        self.0.layers().get(layer).is_some_and(Layer::has_pairs)
    }

    /// Where a chunk starts in the payload of its layer's file.
    fn chunk_offset(&self, layer: usize, tensor: usize, chunk: usize) -> Option<u64> {
        self.0.chunk_offset(layer, tensor, chunk)
    }

    /// Cuts the restore of (tensor, first element, element after the last) into windows of about `budget` bytes.
    fn windows(&self, py: Python<'_>, selections: Vec<(usize, usize, usize)>, budget: usize) -> PyResult<Vec<Window>> {
        let selections = selections.into_iter().map(|(t, start, end)| self.selection(t, start, end));
        let selections = selections.collect::<crate::Result<Vec<_>>>()?;
        let cut = || Ok::<_, Error>(self.0.windows(&selections, budget));
        Ok(py.detach(|| guarded(cut))?.into_iter().map(Window).collect())
    }

    /// Decodes a window from the bytes of its segments, or the payloads that have them, into what it covers of the outputs. `check_each`: checks every record,
    /// not only the last.
    fn decode(
        &self,
        py: Python<'_>,
        window: &Window,
        stored: Vec<Stored<'_>>,
        outputs: Vec<Wanted<'_>>,
        threads: usize,
        check_each: bool,
    ) -> PyResult<()> {
        let stored = stored.into_iter().map(Stored::borrowed).collect::<PyResult<Vec<_>>>()?;
        let sources = stored.iter().map(Borrowed::source).collect::<PyResult<Vec<_>>>()?;
        let mut borrowed: Vec<(Selection, PyReadwriteArray1<'_, u8>)> = Vec::with_capacity(outputs.len());
        for (tensor, start, end, bytes) in &outputs {
            borrowed.push((self.selection(*tensor, *start, *end)?, writable(bytes)?));
        }
        let mut outputs = Vec::with_capacity(borrowed.len());
        for (selection, bytes) in &mut borrowed {
            outputs.push(Output { selection: selection.clone(), bytes: bytes.as_slice_mut()? });
        }
        let pool = Pool::new(threads)?;
        py.detach(|| guarded(|| self.0.decode(&window.0, &sources, &mut outputs, check_each, &pool)))
    }
}

impl Chain {
    fn selection(&self, tensor: usize, start: usize, end: usize) -> crate::Result<Selection> {
        let shape = self.0.shapes().get(tensor).ok_or(Error::Request("a selection of no tensor of the chain"))?;
        if start > end || end > shape.elements {
            return Err(Error::Request("a selection outside its tensor"));
        }
        Ok(Selection { tensor, elements: start..end })
    }
}

/// Decodes one record in place: `content` is the base, or anything where the record has none.
#[pyfunction]
pub fn decode_record(
    py: Python<'_>,
    header: &[u8],
    element: u16,
    payload: &Bound<'_, Bytes>,
    content: &Bound<'_, Bytes>,
    threads: usize,
) -> PyResult<()> {
    let element = element_type(element)?;
    let (payload, mut content) = (readable(payload)?, writable(content)?);
    let (payload, content) = (payload.as_slice()?, content.as_slice_mut()?);
    let pool = Pool::new(threads)?;
    py.detach(|| {
        guarded(|| {
            let header = RecordHeader::of_bytes(header, element, content.len() / element.size())?;
            header.check_place(Place::Frame)?;
            parallel::decode_record(&header, element, payload, content, &pool)
        })
    })
}

/// For each record that its siblings say something of, the formula's number and the records that it reads, else None. All of a
/// snapshot.
#[pyfunction]
pub fn predictions(headers: &[u8], shapes: Vec<(u16, usize)>) -> PyResult<Vec<Option<Predicted>>> {
    let shapes = shapes_of(shapes)?;
    let layer = guarded(|| Layer::parse(headers, (0..shapes.len()).collect(), &shapes))?;
    let predicted = |header: &RecordHeader| match &header.base {
        Base::Predicted(prediction) if prediction.says_something() => {
            Some((prediction.formula.number(), prediction.siblings.clone()))
        }
        _ => None,
    };
    Ok(layer.headers().iter().map(predicted).collect())
}

/// What the record headers of a snapshot say, a dict each.
#[pyfunction]
pub fn describe<'py>(py: Python<'py>, headers: &[u8], shapes: Vec<(u16, usize)>) -> PyResult<Bound<'py, PyList>> {
    let shapes = shapes_of(shapes)?;
    let layer = guarded(|| Layer::parse(headers, (0..shapes.len()).collect(), &shapes))?;
    let list = PyList::empty(py);
    for (header, shape) in layer.headers().iter().zip(&shapes) {
        let dict = PyDict::new(py);
        let mut bytes = Vec::new();
        header.write(shape.element, &mut bytes);
        dict.set_item("kind", header.kind_name())?;
        dict.set_item("base", header.base_name())?;
        dict.set_item("siblings", header.siblings())?;
        dict.set_item("coding", header.coding().map(crate::coding::Coding::name))?;
        dict.set_item("lossy", header.is_lossy())?;
        dict.set_item("needs_base", header.needs_base())?;
        dict.set_item("unchanged_chunks", header.unchanged_chunks())?;
        dict.set_item("error", header.error())?;
        dict.set_item("source", header.source())?;
        dict.set_item("representatives", header.representatives())?;
        dict.set_item("code_lengths", header.coding().and_then(|coding| coding.plain_lengths()))?;
        dict.set_item("header_bytes", bytes.len())?;
        dict.set_item("table_bytes", header.table_bytes(shape.element))?;
        dict.set_item("payload_bytes", header.payload_bytes())?;
        list.append(dict)?;
    }
    Ok(list)
}

/// For each snapshot the records that hold bytes which no kept snapshot needs. `parents`: the snapshot below each, a lower number.
#[pyfunction]
pub fn useless_records(
    py: Python<'_>,
    shapes: Vec<(u16, usize)>,
    snapshots: Vec<Snapshot>,
    parents: Vec<Option<usize>>,
    kept: Vec<bool>,
) -> PyResult<Vec<Vec<u32>>> {
    let shapes = shapes_of(shapes)?;
    let path: Vec<_> = (0..snapshots.len()).map(|number| (0, number)).collect();
    let rises = parents.iter().enumerate().all(|(number, parent)| parent.is_none_or(|parent| parent < number));
    if parents.len() != snapshots.len() || kept.len() != snapshots.len() || !rises {
        return Err(super::errors::exception(&Error::Request("parents of other snapshots"), None, None));
    }
    py.detach(|| {
        guarded(|| {
            let layers = parse_files(&shapes, vec![snapshots], &path)?.remove(0);
            let wanted = layers.iter().zip(&kept).map(|(layer, &kept)| vec![kept; layer.headers().len()]).collect();
            let needed = parallel::needed(&layers, &parents, wanted);
            Ok::<_, PyErr>(layers.iter().zip(&needed).map(|(layer, needed)| layer.useless(needed)).collect())
        })
    })
}

/// What a merged file's payload is put together from.
#[pyclass(module = "ckptz._core", frozen)]
pub struct Merge(Vec<parallel::Segment>);

#[pymethods]
impl Merge {
    /// `chosen`: file and number of each snapshot of the new file; `absent`: the records of each that it leaves out.
    #[new]
    fn new(
        py: Python<'_>,
        shapes: Vec<(u16, usize)>,
        files: Vec<Vec<Snapshot>>,
        chosen: Vec<(usize, usize)>,
        absent: Vec<Vec<u32>>,
    ) -> PyResult<Self> {
        let shapes = shapes_of(shapes)?;
        let mut files = py.detach(|| guarded(|| parse_files(&shapes, files, &chosen)))?;
        for layers in &mut files {
            parallel::place(layers);
        }
        Ok(Merge(py.detach(|| guarded(|| parallel::pieces(&files, &chosen, &absent)))?))
    }

    /// (file, offset in its payload, length) of some pieces, in order; none past the end.
    fn pieces(&self, first: usize, count: usize) -> Vec<(usize, u64, usize)> {
        self.0.iter().skip(first).take(count).map(|s| (s.file, s.offset, s.length)).collect()
    }
}
