//! Families: tensors whose base is predicted, with the siblings that the prediction reads.

use super::{Pool, Tensor};
use crate::error::{Error, Result};
use crate::plan::{AnyPlan, Without};
use crate::predict::{Formula, Siblings, payload_order};

/// Previous contents that are kept at a time, in bytes, if they are several.
const KEPT_BYTES: usize = 32 << 20;

/// How one tensor's base is predicted.
pub struct Family {
    pub formula: Formula,
    /// Tensors of the same run, by number.
    pub siblings: Vec<u32>,
    /// The same as record numbers.
    pub records: Vec<u32>,
    pub plan: FamilyPlan,
}

fn reads_one_of(family: Option<&Family>, left_out: &[bool]) -> bool {
    family.and_then(Family::reads_before).is_some_and(|first| left_out[first])
}

/// What is decided before the siblings are coded.
pub enum FamilyPlan {
    /// The plan: the siblings are exact, so that it does not depend on how they are coded.
    Settled(Box<AnyPlan>),
    /// What a plan has to beat, once it is known what a reader will have of the siblings.
    Open(Without),
}

impl Family {
    /// The plan for the tensor whose family this is, once its siblings are coded.
    pub fn plan(
        &mut self,
        tensor: &Tensor<'_>,
        base: &[u8],
        siblings: Siblings<'_, u8>,
        pool: &Pool,
    ) -> Result<AnyPlan> {
        let without = match std::mem::replace(&mut self.plan, FamilyPlan::Open(Without::ANYTHING)) {
            FamilyPlan::Settled(plan) => return Ok(*plan),
            FamilyPlan::Open(without) => without,
        };
        let (element, spec, contents) = (tensor.element, &tensor.spec, (tensor.target, base));
        let from = (self.formula, &self.records[..]);
        match AnyPlan::predicted(element, spec, contents, siblings, from, without, pool)? {
            Some(plan) => Ok(plan),
            None => AnyPlan::unpredicted(element, spec, contents, siblings, from, pool),
        }
    }
}

/// The families of a snapshot, the order in which they let its tensors be coded, and the contents that they keep.
#[derive(Default)]
pub struct Families {
    pub of: Vec<Option<Family>>,
    /// Tensors, each after its siblings, and the place of each there.
    pub order: Vec<usize>,
    pub place: Vec<usize>,
    /// Previous reconstructions that later tensors read, by tensor, and by how many.
    kept: Vec<(Option<Vec<u64>>, usize)>,
}

impl Families {
    /// No tensor is predicted.
    pub fn none(tensors: usize) -> Self {
        let order: Vec<usize> = (0..tensors).collect();
        let of = order.iter().map(|_| None).collect();
        Families { of, place: order.clone(), order, kept: vec![(None, 0); tensors] }
    }

    /// Whether any tensor's base is predicted.
    pub fn any(&self) -> bool {
        self.of.iter().any(Option::is_some)
    }

    /// One or none for each tensor. Those are left out that would have more kept at a time than [`KEPT_BYTES`], or one content;
    /// `bytes`: of a tensor.
    pub fn new(mut of: Vec<Option<Family>>, bytes: impl Fn(usize) -> usize) -> Result<Self> {
        loop {
            let families = Self::in_order(of)?;
            let left_out = families.too_much(&bytes);
            if !left_out.contains(&true) {
                return Ok(families);
            }
            of = families.of;
            of.iter_mut().filter(|of| reads_one_of(of.as_ref(), &left_out)).for_each(|of| *of = None);
        }
    }

    /// For each tensor whether its content is one too many to be kept.
    fn too_much(&self, bytes: impl Fn(usize) -> usize) -> Vec<bool> {
        let mut readers: Vec<usize> = self.kept.iter().map(|kept| kept.1).collect();
        let mut left_out = vec![false; self.of.len()];
        let mut held = 0;
        for &tensor in &self.order {
            if readers[tensor] > 0 {
                left_out[tensor] = held > 0 && held + bytes(tensor) > KEPT_BYTES;
                held += if left_out[tensor] { 0 } else { bytes(tensor) };
            }
            if let Some(first) = self.of[tensor].as_ref().and_then(Family::reads_before) {
                readers[first] -= 1;
                held -= if readers[first] == 0 && !left_out[first] { bytes(first) } else { 0 };
            }
        }
        left_out
    }

    fn in_order(of: Vec<Option<Family>>) -> Result<Self> {
        let needs = |tensor: usize| of[tensor].as_ref().map_or(&[][..], |family| &family.siblings[..]);
        let order = payload_order(of.len(), 0..of.len(), needs)
            .ok_or(Error::Request("tensors that need each other in a circle"))?;
        let mut place = vec![0; of.len()];
        order.iter().enumerate().for_each(|(at, &tensor)| place[tensor] = at);
        let mut kept: Vec<(Option<Vec<u64>>, usize)> = of.iter().map(|_| (None, 0)).collect();
        of.iter().flatten().filter_map(Family::reads_before).for_each(|first| kept[first].1 += 1);
        Ok(Families { of, order, place, kept })
    }

    pub fn siblings(&self, tensor: usize) -> &[u32] {
        self.of[tensor].as_ref().map_or(&[], |family| &family.siblings)
    }

    /// Whether the previous reconstruction of a tensor must be kept when it is coded.
    pub fn keeps(&self, tensor: usize) -> bool {
        self.kept[tensor].1 > 0
    }

    pub fn keep(&mut self, tensor: usize, content: Vec<u64>) {
        self.kept[tensor].0 = Some(content);
    }

    /// Lets go of what the coded tensor alone still needed.
    pub fn coded(&mut self, tensor: usize) {
        if let Some(first) = self.of[tensor].as_ref().and_then(Family::reads_before) {
            let (content, readers) = &mut self.kept[first];
            *readers -= 1;
            if *readers == 0 {
                *content = None;
            }
        }
    }

    pub fn kept(&self, tensor: usize) -> Option<&[u64]> {
        self.kept[tensor].0.as_deref()
    }
}

impl Family {
    /// The tensor whose previous reconstruction is read.
    fn reads_before(&self) -> Option<usize> {
        (self.formula == Formula::SecondMoment).then(|| self.siblings[0] as usize)
    }
}

/// Tensors that are coded, as the one that is being coded sees them.
pub struct Beside<'a, 't> {
    /// A tensor by number, and what it was before if that is kept.
    pub find: &'a dyn Fn(usize) -> (Option<&'a Tensor<'t>>, Option<&'a [u64]>),
}

impl<'a> Beside<'a, '_> {
    /// What the prediction of a family reads.
    pub fn of(&self, family: Option<&Family>) -> Siblings<'a, u8> {
        let Some(family) = family else { return Siblings::NONE };
        let content = |k: usize| {
            let number = family.siblings.get(k)?;
            (self.find)(*number as usize).0.map(Tensor::reconstruction)
        };
        let s = content(0).unwrap_or(&[]);
        let before = family.reads_before().and_then(|first| (self.find)(first).1);
        let before = before.map_or(&[][..], |words| &bytemuck::cast_slice(words)[..s.len()]);
        Siblings { s, t: content(1).unwrap_or(&[]), before }
    }
}

/// A copy of a tensor's previous reconstruction.
pub fn copy_of(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second_moment(first: u32) -> Option<Family> {
        let plan = FamilyPlan::Open(Without::ANYTHING);
        Some(Family { formula: Formula::SecondMoment, siblings: vec![first], records: vec![first], plan })
    }

    /// First moments 0, 1, 2 .., then the second moments that read them.
    fn families(moments: u32, bytes: usize) -> Families {
        let of = (0..2 * moments).map(|n| n.checked_sub(moments).and_then(second_moment)).collect();
        Families::new(of, |_| bytes).expect("no circle")
    }

    #[test]
    fn no_more_is_kept_than_is_promised() {
        let predicted = |families: &Families| families.of.iter().flatten().count();
        assert_eq!(predicted(&families(5, KEPT_BYTES / 5)), 5);
        assert_eq!(predicted(&families(5, KEPT_BYTES / 2)), 2);
        assert_eq!(predicted(&families(5, KEPT_BYTES + 1)), 1);
        // One after the other, each beside its own first moment, all are.
        let of = (0..10).map(|n: u32| (n % 2 == 1).then(|| second_moment(n - 1)).flatten()).collect();
        assert_eq!(predicted(&Families::new(of, |_| KEPT_BYTES + 1).expect("no circle")), 5);
    }
}
