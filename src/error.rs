//! The one error type of the core. Offsets count from the start of the part that they name.

use std::fmt;

/// Which stored bytes an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A record header.
    Header,
    /// The chunk with this number, in a record's payload.
    Chunk(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Header => write!(f, "record header"),
            Part::Chunk(number) => write!(f, "chunk {number}"),
        }
    }
}

/// What can go wrong in the core.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Bytes that break the format.
    #[error("{part}, byte {offset}: {what}")]
    Format {
        /// The damaged part.
        part: Part,
        /// Byte offset in that part.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// A chunk that decodes to other content than was stored.
    #[error("{part}: its decoded content does not match its content sum (damage, or another base)")]
    Content {
        /// The chunk.
        part: Part,
    },
    /// A request that cannot be carried out: a caller's mistake.
    #[error("{0}")]
    Request(&'static str),
    /// A tensor whose content is not what it was when its coding was planned.
    #[error("a tensor was changed while it was being encoded")]
    Changed,
    /// The system gives no more threads.
    #[error("the threads could not be started")]
    Threads,
    /// A file that the system does not read; the system's number of what is wrong.
    #[error("the file cannot be read: {}", std::io::Error::from_raw_os_error(*.0))]
    Read(i32),
    /// A buffer that could not be allocated.
    #[error("not enough memory for {0} bytes")]
    Memory(usize),
}

/// Result with the core's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong at a byte offset, before the part is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flaw {
    pub offset: usize,
    pub what: &'static str,
}

impl Flaw {
    pub fn new(offset: usize, what: &'static str) -> Self {
        Flaw { offset, what }
    }

    pub fn within(self, part: Part) -> Error {
        Error::Format { part, offset: self.offset, what: self.what }
    }

    /// The same flaw, seen from a surrounding slice.
    pub fn shifted(self, by: usize) -> Self {
        Flaw { offset: self.offset + by, ..self }
    }
}

/// Parsing result: the caller knows which [`Part`] the bytes belong to.
pub type Parsed<T> = std::result::Result<T, Flaw>;
