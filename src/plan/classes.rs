//! Planning classes and fields: the window of classes, and the coding of their symbols.

use super::Workers;
use super::sample::Source;
use crate::chunk::encode::{count_classes, count_exact};
use crate::chunk::with_scratch;
use crate::coding::{Candidate, Coding, CodingChoice, FieldBits, Histogram};
use crate::exact::{ESCAPE, LaneCut, Window};
use crate::float::Element;

/// Plans from some entries, or from samples of them.
pub struct ClassPlanner<'a, E, W> {
    /// Where the sources are samples: of how many elements, in chunks of what log2.
    pub of: Option<(usize, u8)>,
    /// What classes are counted over.
    pub spread: Source<'a, E>,
    /// What symbols are counted over.
    pub blocks: Source<'a, E>,
    pub workers: &'a W,
}

/// A window, the highest symbol that may occur, and the coding, with the bits of symbols, fields and escapes.
pub struct Classes {
    pub window: Window,
    pub highest: u8,
    pub coded: Candidate,
}

impl<E: Element, W: Workers> ClassPlanner<'_, E, W> {
    pub fn plan<C: LaneCut<E>>(&self, cut: C) -> Classes {
        let mut classes = self.count_classes(cut);
        let mut zeros = classes.pop().unwrap_or(0);
        let window = Window::choose(&classes);
        let mut counts = self.count_symbols(cut, window);
        let mut highest = counts.symbols.iter().rposition(|count| *count > 0).unwrap_or(0) as u8;
        if let Some((elements, chunk_log2)) = self.of {
            // What the sample lacks may occur: every symbol gets a codeword.
            highest = ESCAPE;
            counts.scale_up(elements, highest, chunk_log2);
            let factor = (elements / self.spread.target.len()) as u64;
            classes.iter_mut().chain([&mut zeros]).for_each(|count| *count *= factor);
        }
        let zero_width = if C::ZEROS_HAVE_FIELDS { cut.field_width(0) } else { 0 };
        let of_class = |(class, n): (usize, &u64)| n * u64::from(cut.field_width(class as u16));
        let escape = if E::BITS == 64 { 16 } else { 8 };
        let escapes = escape * counts.symbols[usize::from(ESCAPE)];
        let of_others = classes.iter().enumerate().map(of_class).sum::<u64>() + escapes;
        let fields = FieldBits { of_zeros: zeros * u64::from(zero_width), of_others };
        let mut coded = Coding::choose(&counts, highest, fields, CodingChoice::Cheapest);
        coded.bits += of_others;
        Classes { window, highest, coded }
    }

    /// By class, and last the entries that have none.
    fn count_classes<C: LaneCut<E>>(&self, cut: C) -> Vec<u64> {
        let mut classes = vec![0u64; C::CLASSES + 1];
        let of_chunk = |place: usize| {
            let (target, base) = self.spread.chunk(place);
            let mut counts = vec![0u64; C::CLASSES + 1];
            count_classes(cut, target, base, &mut counts);
            counts
        };
        self.workers.in_order(self.spread.chunks.len(), of_chunk, |counts| {
            classes.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        });
        classes
    }

    fn count_symbols<C: LaneCut<E>>(&self, cut: C, window: Window) -> Histogram {
        let mut all = Histogram::default();
        let of_chunk = |place: usize| {
            let (target, base) = self.blocks.chunk(place);
            let mut counts = Histogram::default();
            with_scratch(|scratch| count_exact(cut, window, target, base, scratch, &mut counts));
            counts
        };
        self.workers.in_order(self.blocks.chunks.len(), of_chunk, |counts| all.merge(counts));
        all
    }
}
