//! The stored bytes of a window: in memory, or to be read from their file chunk by chunk, by the thread that decodes them.

use super::window::Segment;
use crate::error::{Error, Flaw, Part, Result};
use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;

/// Where the bytes of a segment are.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// Here: as many as the segment has.
    Bytes(&'a [u8]),
    /// In a file whose payload starts at an offset.
    File(&'a File, u64),
}

/// The bytes of a window's segments.
pub struct Stored<'a> {
    pub segments: &'a [Segment],
    pub sources: &'a [Source<'a>],
}

/// Room for a larger chunk is given back.
const ROOM_KEPT: usize = 1 << 20;

thread_local! {
    /// A chunk that is read next is in cache when it is decoded, and in memory that has been used before.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Stored<'_> {
    /// Calls `work` with some bytes of a file's payload, which are those of `part`.
    pub fn with<T>(
        &self,
        file: usize,
        bytes: Range<u64>,
        part: Part,
        work: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        if bytes.is_empty() {
            return work(&[]);
        }
        let missing = || Flaw::new(0, "its bytes are not there").within(part);
        let after = self.segments.partition_point(|s| (s.file, s.offset) <= (file, bytes.start));
        let at = after.checked_sub(1).ok_or_else(missing)?;
        let segment = &self.segments[at];
        let from =
            bytes.start.checked_sub(segment.offset).and_then(|from| usize::try_from(from).ok()).ok_or_else(missing)?;
        let length = usize::try_from(bytes.end - bytes.start).map_err(|_| missing())?;
        let within = from.checked_add(length).filter(|end| segment.file == file && *end <= segment.length);
        let end = within.ok_or_else(missing)?;
        match self.sources[at] {
            Source::Bytes(all) => work(all.get(from..end).ok_or_else(missing)?),
            Source::File(file, start) => {
                let mut room = ROOM.take();
                let done = read(file, start.saturating_add(bytes.start), length, part, &mut room)
                    .and_then(|()| work(&room[..length]));
                if room.len() <= ROOM_KEPT {
                    ROOM.set(room);
                }
                done
            }
        }
    }
}

/// Fills the beginning of `room` with bytes of a file.
fn read(file: &File, offset: u64, length: usize, part: Part, room: &mut Vec<u8>) -> Result<()> {
    if room.len() < length {
        room.try_reserve_exact(length - room.len()).map_err(|_| Error::Memory(length))?;
        room.resize(length, 0);
    }
    read_exact_at(file, &mut room[..length], offset).map_err(|error| match error.raw_os_error() {
        Some(number) => Error::Read(number),
        None => Flaw::new(0, "the payload is cut off").within(part),
    })
}

#[cfg(unix)]
fn read_exact_at(file: &File, room: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, room, offset)
}

#[cfg(not(unix))]
fn read_exact_at(_file: &File, _room: &mut [u8], _offset: u64) -> std::io::Result<()> {
    Err(std::io::Error::from_raw_os_error(38))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write;

    const PART: Part = Part::Chunk(3);
    const SEGMENTS: [Segment; 2] = [
        Segment { file: 0, offset: 100, length: 1000, chunks: 2 },
        Segment { file: 1, offset: 0, length: 50, chunks: 1 },
    ];

    fn some_file(length: usize) -> (File, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("ckptz-stored-{}-{length}", std::process::id()));
        let content: Vec<u8> = (0..length).map(|i| ((i * i) >> 3) as u8).collect();
        File::create(&path).and_then(|mut file| file.write_all(&content)).expect("written");
        let file = File::open(&path).expect("there");
        std::fs::remove_file(&path).expect("removed");
        (file, content)
    }

    #[test]
    fn a_file_gives_the_same_as_its_bytes() {
        let (file, content) = some_file(2000);
        let in_file = [Source::File(&file, 16), Source::Bytes(&content[..50])];
        let in_memory = [Source::Bytes(&content[116..1116]), Source::Bytes(&content[..50])];
        for sources in [in_file, in_memory] {
            let stored = Stored { segments: &SEGMENTS, sources: &sources };
            let get = |file, bytes| stored.with(file, bytes, PART, |bytes| Ok(bytes.to_vec()));
            assert_eq!(get(0, 100..1100).as_deref(), Ok(&content[116..1116]));
            assert_eq!(get(0, 700..750).as_deref(), Ok(&content[716..766]));
            assert_eq!(get(1, 10..50).as_deref(), Ok(&content[10..50]));
            assert_eq!(get(7, 3..3), Ok(Vec::new()));
            for (file, bytes) in
                [(1, 0..51), (1, 70..71), (0, 99..101), (0, 100..1101), (0, 1100..1101), (1, 49..51), (2, 0..1)]
            {
                let missing = Flaw::new(0, "its bytes are not there").within(PART);
                assert_eq!(get(file, bytes), Err(missing));
            }
        }
    }

    #[test]
    fn the_end_of_a_file_and_errors_of_the_system_are_told() {
        let (short, _) = some_file(600);
        let directory = File::open(std::env::temp_dir()).expect("there");
        let found = [&short, &directory].map(|file| {
            let sources = [Source::File(file, 16), Source::Bytes(&[])];
            Stored { segments: &SEGMENTS, sources: &sources }.with(0, 500..1100, PART, |_| Ok(()))
        });
        assert_eq!(found[0], Err(Flaw::new(0, "the payload is cut off").within(PART)));
        assert_eq!(found[1], Err(Error::Read(21))); // EISDIR
    }

    #[test]
    fn large_room_is_given_back() {
        let (file, content) = some_file(ROOM_KEPT + 2000);
        let segments = [Segment { file: 0, offset: 0, length: content.len(), chunks: 1 }];
        let sources = [Source::File(&file, 0)];
        let stored = Stored { segments: &segments, sources: &sources };
        for (length, kept) in [(ROOM_KEPT, ROOM_KEPT), (ROOM_KEPT + 1, 0), (5, 5)] {
            let same = |bytes: &[u8]| Ok(bytes == &content[..length]);
            assert_eq!(stored.with(0, 0..length as u64, PART, same), Ok(true));
            assert_eq!(ROOM.take().len(), kept);
        }
    }
}
