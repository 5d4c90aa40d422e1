//! Where a record stands, and which base it may have there (format.md, sections 5 and 16).

use super::{Base, Kind, RecordHeader};
use crate::error::{Flaw, Part, Result};

/// What a record is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Full,
    Delta,
    Residual,
    /// An array frame: the record stands alone.
    Frame,
}

impl Place {
    /// The place of the snapshots that Python numbers 0, 1 and 2.
    pub fn of_number(number: u8) -> Option<Self> {
        [Place::Full, Place::Delta, Place::Residual].get(usize::from(number)).copied()
    }
}

impl RecordHeader {
    /// Refuses a kind or a base that a record cannot have in this place.
    pub fn check_place(&self, place: Place) -> Result<()> {
        let base_fits = match (place, &self.base) {
            (_, Base::Zero) | (Place::Delta | Place::Frame, Base::Previous) => true,
            (Place::Delta, Base::Predicted(_)) | (Place::Residual, Base::Own) => true,
            (_, Base::Previous | Base::Predicted(_) | Base::Own) => false,
        };
        let kind_fits = match &self.kind {
            Kind::Link(_) => place != Place::Frame,
            Kind::Lossy { .. } => place != Place::Residual,
            Kind::Same | Kind::Classes { .. } | Kind::Difference { .. } | Kind::Bytes { .. } => true,
        };
        if base_fits && kind_fits {
            return Ok(());
        }
        Err(Flaw::new(0, "a record of a kind or with a base that cannot stand here").within(Part::Header))
    }
}
