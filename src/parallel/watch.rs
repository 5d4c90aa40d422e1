//! Telling whether a state has been changed while it was saved, at hardly any cost: by sums of chunks while they are in cache.
//!
//! A state that has a residual is coded twice, first for the snapshot and then for the residual. If each chunk has one sum before it is
//! coded first and the same after it is read last, it was not changed in between (or changed back), and all was as coded at one time:
//! between the two. What is read before, plans and comparisons, decides only how to code, or is looked at again.

use super::Pool;
use super::links::{link_record, matches_rounded};
use super::tensor::{Tensor, TensorBase};
use crate::checksum::{TensorSum, content_sum};
use crate::chunk::encode::EncodedChunk;
use crate::error::{Error, Result};
use crate::header::RecordHeader;
use crate::plan::{AnyPlan, BaseRole, ChunkBase};
use crate::predict::Siblings;
use crate::sink::Sink;
use std::sync::atomic::{AtomicBool, Ordering};

/// A chunk's number, its bytes and its part of the siblings.
pub type Piece<'a> = (usize, &'a [u8], Siblings<'a, u8>);

/// Encodes a chunk, and tells the content sum of its target if it is watched: of a residual after it has been read, else before.
pub fn encode_chunk(
    plan: &AnyPlan,
    (number, target, siblings): Piece<'_>,
    base: &mut ChunkBase<'_>,
    out: &mut dyn Sink,
    watched: bool,
) -> Result<(EncodedChunk, u64)> {
    let last = matches!(base, ChunkBase::Own(_));
    let first_sum = if watched && !last { content_sum(target) } else { 0 };
    let encoded = plan.encode_chunk(number, target, base, siblings, out)?;
    let sum = match encoded.length {
        _ if !watched || !last => first_sum,
        // The record's own is taken of the target, with the last look at it.
        Some(_) => encoded.sum,
        None => content_sum(target),
    };
    Ok((encoded, sum))
}

/// Bytes that are looked at before all are: most tensors differ from their base soon.
const FIRST_BYTES: usize = 64;

/// Whether a tensor begins as its base does.
pub fn may_be_same(tensor: &Tensor<'_>) -> bool {
    let first = tensor.target.len().min(FIRST_BYTES);
    tensor.base.bytes().is_some_and(|(base, _)| base.get(..first) == Some(&tensor.target[..first]))
}

/// The sum of a tensor that is as its base, so that nothing is coded of it, and what that base is; `None` if it is not.
pub fn same(tensor: &Tensor<'_>, pool: &Pool) -> Result<Option<(BaseRole, TensorSum)>> {
    tensor.check()?;
    let Some((base, role)) = tensor.base.bytes().filter(|_| may_be_same(tensor)) else { return Ok(None) };
    let (target, size) = (tensor.target, tensor.chunk_bytes());
    let differs = AtomicBool::new(false);
    let sum = |(target, base): (&[u8], &[u8])| {
        // The sum is between the two looks that count: before the first of a snapshot, after the last of a residual.
        let found = if differs.load(Ordering::Relaxed) {
            None
        } else if matches!(tensor.base, TensorBase::Own(_)) {
            (target == base).then(|| content_sum(target))
        } else {
            let sum = content_sum(target);
            (target == base).then_some(sum)
        };
        differs.fetch_or(found.is_none(), Ordering::Relaxed);
        found
    };
    let sums = pool.map(target.chunks(size).zip(base.chunks(size)).collect(), sum);
    Ok(sums.into_iter().collect::<Option<TensorSum>>().map(|sum| (role, sum)))
}

/// The header of the link from one tensor to another, as [`link_record`] makes it, and the sum of what is linked.
pub fn link(
    tensors: &mut [Tensor<'_>],
    (linked, source): (usize, u32),
    first: u32,
) -> Result<(RecordHeader, TensorSum)> {
    let is_residual = matches!(tensors[linked].base, TensorBase::Own(_));
    let sum =
        if is_residual { TensorSum::default() } else { sum_of_linked(&tensors[source as usize], &tensors[linked])? };
    let header = link_record(tensors, linked, source, first)?;
    // A residual's record has the sums of the target, which is not looked at any more.
    let sum = if is_residual { header.index.iter().map(|chunk| chunk.sum).collect() } else { sum };
    Ok((header, sum))
}

/// The sum of a tensor of which nothing is coded, for it was as another one when that was decided.
fn sum_of_linked(source: &Tensor<'_>, linked: &Tensor<'_>) -> Result<TensorSum> {
    let sum = TensorSum::of(linked.target, linked.chunk_bytes());
    if matches_rounded(source.element, source.target, linked)? { Ok(sum) } else { Err(Error::Changed) }
}

/// The sums of tensors as they are now.
pub fn sums_of(tensors: &[Tensor<'_>], pool: &Pool) -> Vec<u64> {
    let chunks = tensors.iter().flat_map(|tensor| tensor.target.chunks(tensor.chunk_bytes()));
    let mut sums = pool.map(chunks.collect(), content_sum).into_iter();
    let of = |tensor: &Tensor<'_>| {
        let chunks = tensor.target.len().div_ceil(tensor.chunk_bytes());
        sums.by_ref().take(chunks).collect::<TensorSum>().value()
    };
    tensors.iter().map(of).collect()
}
