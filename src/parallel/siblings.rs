//! Finding siblings: by what the data say, not by names. Of tensors of one type and length some entries are sampled, pairs are
//! screened, formulas fitted to those that are left, and the best is planned with and without.

use super::families::{Family, FamilyPlan};
use super::screen::{Entries, Profile, best};
use super::tensor::{Tensor, TensorBase};
use super::{Pool, families::Families};
use crate::error::Result;
use crate::fenv;
use crate::float::{Arith, Element, ElementType};
use crate::plan::{AnyPlan, BaseRole, Serial, sampled_places};
use crate::predict::{Formula, Siblings, payload_order};
use crate::view::{elements, with_element_type};
use std::collections::BTreeMap;

/// Tensors with fewer elements are not predicted: the coefficients would take what is saved.
const LEAST: usize = 32;

/// Pairs that are screened for one snapshot, at most.
const MOST_PAIRS: usize = 1 << 22;

/// A class of which less than one part in so many can be screened is left out: all of it would have to be looked at.
const LEAST_PART: usize = 16;

/// Candidates whose fit is tried, for each tensor.
const TRIED: usize = 3;

/// A prediction must leave no more than this share of the delta's energy: less than what a plan asks for, for a plan knows what
/// a reader will have of the siblings, and that is worse than what they are.
const ENERGY_LEFT: f64 = 0.7;

/// A formula, and the tensors that it reads.
pub type Known = (Formula, Vec<u32>);

/// Finds for each tensor how its base is best predicted, if that pays. `known`: what was found for the snapshot before, by
/// tensor, none or one for each; `search`: whether to look for more. `first`: the record number of the first tensor.
pub fn find_families(
    tensors: &[Tensor<'_>],
    links: &[Option<u32>],
    known: &[Option<Known>],
    search: bool,
    first: u32,
    pool: &Pool,
) -> Result<Families> {
    fenv::standard(|| {
        let mut found: Vec<Option<Known>> = (0..tensors.len())
            .map(|number| known.get(number)?.clone().filter(|known| fits(tensors, links, number, known)))
            .collect();
        // What was found before has no circle, unless a file says so.
        if payload_order(found.len(), 0..found.len(), |number| siblings(&found[number])).is_none() {
            found.fill(None);
        }
        if search {
            search_classes(tensors, links, &mut found, pool)?;
        }
        let work: Vec<(usize, Known)> =
            found.into_iter().enumerate().filter_map(|(number, known)| Some((number, known?))).collect();
        let settled = pool.map(work, |(number, known)| Ok((number, settle(tensors, number, known, first)?)));
        let mut families: Vec<Option<Family>> = tensors.iter().map(|_| None).collect();
        for result in settled {
            let (number, family) = result?;
            families[number] = family;
        }
        Families::new(families, |number| tensors[number].target.len())
    })
}

fn siblings(known: &Option<Known>) -> &[u32] {
    known.as_ref().map_or(&[], |(_, siblings)| siblings)
}

/// Whether a tensor may be predicted at all.
fn may_be_predicted(tensor: &Tensor<'_>, link: Option<u32>) -> bool {
    let floats = tensor.element.is_float() && tensor.elements() >= LEAST;
    floats && tensor.spec.predict && link.is_none() && matches!(tensor.base, TensorBase::Previous(_))
}

fn may_be_sibling(tensor: &Tensor<'_>, link: Option<u32>) -> bool {
    link.is_none() && !matches!(tensor.base, TensorBase::Own(_))
}

/// Whether what was found before still names tensors that fit.
fn fits(tensors: &[Tensor<'_>], links: &[Option<u32>], number: usize, (formula, siblings): &Known) -> bool {
    let tensor = &tensors[number];
    let alike = |&sibling: &u32| {
        tensors.get(sibling as usize).is_some_and(|other| {
            let same = other.element == tensor.element && other.target.len() == tensor.target.len();
            let has_before = *formula != Formula::SecondMoment || matches!(other.base, TensorBase::Previous(_));
            let chunks = other.spec.chunk_log2 == tensor.spec.chunk_log2;
            same && has_before && chunks && may_be_sibling(other, links[sibling as usize])
        })
    };
    may_be_predicted(tensor, links[number])
        && siblings.len() == formula.arity().0
        && siblings.iter().all(|sibling| *sibling as usize != number && alike(sibling))
}

/// Searches among tensors of one type and length, for those of which nothing is known.
fn search_classes(
    tensors: &[Tensor<'_>],
    links: &[Option<u32>],
    found: &mut [Option<Known>],
    pool: &Pool,
) -> Result<()> {
    let mut classes: BTreeMap<(usize, usize, u8), Vec<usize>> = BTreeMap::new();
    for (number, tensor) in tensors.iter().enumerate() {
        if may_be_sibling(tensor, links[number]) && tensor.element.is_float() && tensor.elements() >= LEAST {
            let key = (tensor.elements(), type_number(tensor.element), tensor.spec.chunk_log2);
            classes.entry(key).or_default().push(number);
        }
    }
    let mut candidates: Vec<(f64, usize, Known)> = Vec::new();
    let mut pairs = 0;
    for numbers in classes.values().filter(|numbers| numbers.len() > 1) {
        let open: Vec<usize> = (0..numbers.len())
            .filter(|&k| found[numbers[k]].is_none() && may_be_predicted(&tensors[numbers[k]], links[numbers[k]]))
            .collect();
        let affordable = (MOST_PAIRS - pairs) / numbers.len();
        if open.is_empty() || affordable * LEAST_PART < open.len() {
            continue;
        }
        let profiles: Result<Vec<Profile>> =
            pool.map(numbers.clone(), |number| Ok(Profile::new(&entries(&tensors[number])?))).into_iter().collect();
        let class = Class { tensors, numbers, profiles: profiles? };
        let open: Vec<usize> = open.into_iter().filter(|&k| class.profiles[k].changed).take(affordable).collect();
        pairs += open.len() * numbers.len();
        let is_moment = |&k: &usize| class.profiles[k].non_negative;
        let (moments, others): (Vec<usize>, Vec<usize>) = open.into_iter().partition(is_moment);
        let mut results = pool.map(others, |k| (k, class.direction_of(k)));
        // What a direction is scaled by is most likely its second moment.
        let first_of = |t: usize| {
            let pairs = results.iter().filter_map(|(_, best)| best.as_ref().map(|(_, _, siblings)| siblings));
            pairs.filter(move |siblings| siblings.get(1) == Some(&t)).map(|siblings| siblings[0]).next()
        };
        let moments = moments.into_iter().map(|k| (k, first_of(k))).collect();
        results.extend(pool.map(moments, |(k, likely)| (k, class.second_moment_of(k, likely))));
        for (k, best) in results {
            if let Some((left, formula, siblings)) = best {
                let siblings = siblings.into_iter().map(|k| numbers[k] as u32).collect();
                candidates.push((left, numbers[k], (formula, siblings)));
            }
        }
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for (_, number, known) in candidates {
        if !known.1.iter().any(|&sibling| leads_to(found, sibling as usize, number)) {
            found[number] = Some(known);
        }
    }
    Ok(())
}

fn type_number(element: ElementType) -> usize {
    match element {
        ElementType::F16 => 0,
        ElementType::BF16 => 1,
        ElementType::F32 => 2,
        ElementType::F64 => 3,
        ElementType::Bytes(size) => 16 + usize::from(size),
    }
}

/// Whether following siblings from one tensor comes to another. What is found so far has no circle.
fn leads_to(found: &[Option<Known>], from: usize, to: usize) -> bool {
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        open.extend(siblings(&found[at]).iter().map(|&sibling| sibling as usize));
    }
    false
}

fn entries(tensor: &Tensor<'_>) -> Result<Entries> {
    with_element_type!(tensor.element, E => {
        let wide = |bytes: &[u8]| -> Result<Vec<f64>> {
            let all = elements::<E>(bytes)?;
            Ok(sampled_places(all.len()).flat_map(|place| &all[place]).map(|e| e.to_arith().to_f64()).collect())
        };
        let base = match &tensor.base {
            TensorBase::Previous(base) => wide(base)?,
            TensorBase::None | TensorBase::Own(_) => Vec::new(),
        };
        Ok(Entries { target: wide(tensor.target)?, base })
    }, _size => Ok(Entries { target: Vec::new(), base: Vec::new() }))
}

/// A formula with what it leaves of the delta's energy, and the siblings' places in their class.
type Found = (f64, Formula, Vec<usize>);

/// Tensors of one type and length.
struct Class<'a, 't> {
    tensors: &'a [Tensor<'t>],
    numbers: &'a [usize],
    profiles: Vec<Profile>,
}

impl Class<'_, '_> {
    fn entries(&self, k: usize) -> Option<Entries> {
        entries(&self.tensors[self.numbers[k]]).ok()
    }

    fn fit(&self, tensor: &Entries, formula: Formula, siblings: Vec<usize>) -> Option<Found> {
        let s = self.entries(siblings[0])?;
        let t = siblings.get(1).and_then(|&t| self.entries(t));
        let fit = formula.fit(&tensor.sampled(&s, t.as_ref()))?;
        (fit.left < ENERGY_LEFT).then_some((fit.left, formula, siblings))
    }

    /// The best direction for one tensor.
    fn direction_of(&self, k: usize) -> Option<Found> {
        let others = || (0..self.profiles.len()).filter(|&other| other != k);
        let agreement = |s: usize| self.profiles[k].step.agreement(&self.profiles[s].sign).abs();
        let directions = best(others().map(|s| (s, agreement(s))), TRIED);
        if directions.is_empty() {
            return None;
        }
        let tensor = self.entries(k)?;
        let mut tried = Vec::new();
        for s in directions {
            tried.extend(self.fit(&tensor, Formula::Direction, vec![s]));
            let steps = tensor.scaled_steps(&self.entries(s)?);
            let scales = others().filter(|&t| t != s && self.profiles[t].non_negative);
            let likely = best(scales.map(|t| (t, -steps.agreement(&self.profiles[t].size))), TRIED);
            let adaptive = |t| self.fit(&tensor, Formula::AdaptiveDirection, vec![s, t]);
            tried.extend(likely.into_iter().filter_map(adaptive));
        }
        tried.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The best first moment for one second moment; `likely`: one to try before all others.
    fn second_moment_of(&self, k: usize, likely: Option<usize>) -> Option<Found> {
        let profiles = &self.profiles;
        let tensor = self.entries(k)?;
        let fit = |s: usize| self.fit(&tensor, Formula::SecondMoment, vec![s]);
        let has_news = |s: &usize| *s != k && profiles[*s].has_base && !profiles[*s].non_negative;
        if let Some(found) = likely.filter(has_news).and_then(fit) {
            return Some(found);
        }
        let news = (0..profiles.len()).filter(has_news).map(|s| (s, profiles[k].size.agreement(&profiles[s].news)));
        best(news, TRIED).into_iter().filter_map(fit).min_by(|a, b| a.0.total_cmp(&b.0))
    }
}

/// Plans a tensor without its prediction, and where the siblings are exact, with it: the family, if it pays. Where they are lossy
/// that is told only when they have been coded.
fn settle(tensors: &[Tensor<'_>], number: usize, (formula, siblings): Known, first: u32) -> Result<Option<Family>> {
    let tensor = &tensors[number];
    let TensorBase::Previous(base) = &tensor.base else { return Ok(None) };
    tensor.check()?;
    let target = |k: usize| siblings.get(k).map_or(&[][..], |&sibling| tensors[sibling as usize].target);
    let before = match (formula, &tensors[siblings[0] as usize].base) {
        (Formula::SecondMoment, TensorBase::Previous(before)) => &before[..],
        _ => &[],
    };
    let known = Siblings { s: target(0), t: target(1), before };
    let records: Vec<u32> = siblings.iter().map(|sibling| first + sibling).collect();
    let without = Some((&**base, BaseRole::Previous));
    let without = AnyPlan::new(tensor.element, &tensor.spec, tensor.target, without, &Serial)?;
    if tensor.may_be_lossy() && !without.is_lossy() {
        // It is exact for a reason, and with a lossy prediction it would not be.
        return Ok(None);
    }
    let without = without.to_beat(tensor.target, base, tensor.spec.chunk_log2)?;
    if siblings.iter().any(|&sibling| tensors[sibling as usize].may_be_lossy()) {
        return Ok(Some(Family { formula, records, plan: FamilyPlan::Open(without), siblings }));
    }
    let (from, contents) = ((formula, &records[..]), (tensor.target, &base[..]));
    let plan = AnyPlan::predicted(tensor.element, &tensor.spec, contents, known, from, without, &Serial)?;
    Ok(plan.map(|plan| Family { formula, records, plan: FamilyPlan::Settled(Box::new(plan)), siblings }))
}
