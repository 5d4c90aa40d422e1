//! Where coded bytes go, one after the other.

/// A place that coded bytes are appended to.
pub trait Sink {
    /// Bytes that it has.
    fn length(&self) -> usize;

    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Appends so many bytes that hold anything, for the caller to write; [`Sink::cut`] takes back what was too much.
    fn stretch(&mut self, count: usize) -> &mut [u8];

    /// Makes it so long again, if it is longer.
    fn cut(&mut self, length: usize);
}

impl Sink for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn stretch(&mut self, count: usize) -> &mut [u8] {
        let start = self.len();
        self.resize(start + count, 0);
        &mut self[start..]
    }

    fn cut(&mut self, length: usize) {
        self.truncate(length);
    }
}

/// A buffer to be used again: what it had is not cleared, so that nothing is written twice.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub fn clear(&mut self) {
        self.length = 0;
    }
}

impl Sink for Buffer {
    fn length(&self) -> usize {
        self.length
    }

    fn put(&mut self, bytes: &[u8]) {
        self.stretch(bytes.len()).copy_from_slice(bytes);
    }

    fn stretch(&mut self, count: usize) -> &mut [u8] {
        let start = self.length;
        self.length += count;
        if self.bytes.len() < self.length {
            self.bytes.resize(self.length, 0);
        }
        &mut self.bytes[start..self.length]
    }

    fn cut(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

/// The caller's room, and a vector for what that has no room for.
#[derive(Debug)]
pub struct Spilling<'a> {
    room: &'a mut [u8],
    /// Bytes in the room.
    taken: usize,
    spill: Vec<u8>,
}

impl<'a> Spilling<'a> {
    /// Goes on after the first `taken` bytes of the room.
    pub fn after(taken: usize, room: &'a mut [u8], spill: Vec<u8>) -> Self {
        Spilling { room, taken, spill }
    }

    /// Bytes in the room.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// What is in the room and in the vector from a length on.
    pub fn since(&self, length: usize) -> [&[u8]; 2] {
        let [in_room, spilled] = self.split(length);
        [&self.room[in_room..self.taken], &self.spill[spilled..]]
    }

    /// Fills the room from the vector: a stretch that was too long for the room may have left some of it.
    pub fn settle(&mut self) {
        let room = &mut self.room[self.taken..];
        let fits = room.len().min(self.spill.len());
        room[..fits].copy_from_slice(&self.spill[..fits]);
        self.spill.drain(..fits);
        self.taken += fits;
    }

    /// What the room had no room for.
    pub fn into_spill(self) -> Vec<u8> {
        self.spill
    }

    /// A length as one of the room and one of the vector.
    fn split(&self, length: usize) -> [usize; 2] {
        let in_room = length.min(self.taken);
        [in_room, (length - in_room).min(self.spill.len())]
    }
}

impl Sink for Spilling<'_> {
    fn length(&self) -> usize {
        self.taken + self.spill.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        let room = if self.spill.is_empty() { &mut self.room[self.taken..] } else { &mut [] };
        let (now, later) = bytes.split_at(bytes.len().min(room.len()));
        room[..now.len()].copy_from_slice(now);
        self.taken += now.len();
        self.spill.extend_from_slice(later);
    }

    fn stretch(&mut self, count: usize) -> &mut [u8] {
        if self.spill.is_empty() && self.room.len() - self.taken >= count {
            let start = self.taken;
            self.taken += count;
            return &mut self.room[start..self.taken];
        }
        self.spill.stretch(count)
    }

    fn cut(&mut self, length: usize) {
        let [in_room, spilled] = self.split(length);
        self.taken = in_room;
        self.spill.truncate(spilled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Call {
        Put(Vec<u8>),
        /// So many bytes, of which so many are taken back.
        Stretch(Vec<u8>, usize),
    }

    fn calls() -> impl Strategy<Value = Vec<Call>> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40);
        let stretch = (bytes(), 0usize..60).prop_map(|(bytes, back)| Call::Stretch(bytes, back));
        prop::collection::vec(prop_oneof![bytes().prop_map(Call::Put), stretch], 0..30)
    }

    fn run(calls: &[Call], sink: &mut dyn Sink) {
        for call in calls {
            let start = sink.length();
            match call {
                Call::Put(bytes) => sink.put(bytes),
                Call::Stretch(bytes, back) => {
                    let all = sink.stretch(bytes.len());
                    assert_eq!(all.len(), bytes.len());
                    all.copy_from_slice(bytes);
                    let length = start + bytes.len().saturating_sub(*back);
                    sink.cut(length);
                    assert_eq!(sink.length(), length);
                    sink.cut(length + 1);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn all_sinks_take_the_same(first in calls(), second in calls(), room in 0usize..600, before in 0usize..20) {
            let mut plain = Vec::new();
            run(&first, &mut plain);
            let mut buffer = Buffer::default();
            run(&second, &mut buffer);
            buffer.clear();
            run(&first, &mut buffer);
            prop_assert_eq!(buffer.bytes(), &plain);

            let (room, mut memory) = (room + before, vec![7; room + before]);
            let mut spilling = Spilling::after(before, &mut memory, Vec::new());
            run(&first, &mut spilling);
            let middle = spilling.length();
            prop_assert_eq!(middle, before + plain.len());
            run(&second, &mut spilling);
            run(&second, &mut plain);
            prop_assert_eq!(spilling.since(middle).concat(), &plain[middle - before..]);
            prop_assert!(spilling.taken() <= room);
            let all = spilling.since(before).concat();
            spilling.settle();
            prop_assert_eq!(spilling.since(before).concat(), all);
            prop_assert_eq!(spilling.taken(), room.min(before + plain.len()));
            let (taken, spill) = (spilling.taken(), spilling.into_spill());
            prop_assert_eq!(&memory[..before], &vec![7; before]);
            prop_assert_eq!([&memory[before..taken], &spill].concat(), plain);
        }
    }
}
