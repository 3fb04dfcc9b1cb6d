//! The name that all ranks of a pass agree on.

use std::{fmt, str::FromStr};

use super::{Error, LocalityId, PlanId, text::Fields};

/// The order that all ranks walk, and the locality that divides their global batches. Ranks with
/// different names lose and repeat rows.
///
/// A [`LoaderState`](super::LoaderState) and an [`EpochDigest`](super::EpochDigest) know only the
/// plan: the division among ranks does not change which samples come.
///
/// Its text is that of the plan, and where a locality divides batches `/` and 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PassName {
    plan: PlanId,
    locality: Option<LocalityId>,
}

impl PassName {
    /// The name of a pass with batches divided by `locality`, or without one in consecutive slices.
    #[must_use]
    pub fn new(plan: PlanId, locality: Option<LocalityId>) -> Self {
        Self { plan, locality }
    }

    /// The order.
    #[must_use]
    pub fn plan(&self) -> PlanId {
        self.plan
    }

    /// The locality that divides batches.
    #[must_use]
    pub fn locality(&self) -> Option<LocalityId> {
        self.locality
    }

    /// Checks that another rank gives its pass the same name.
    ///
    /// # Errors
    /// [`Error::Plan`] if the other rank walks another order, [`Error::Division`] if it divides the
    /// batches of this order differently.
    pub fn agrees_with(&self, other: &Self) -> Result<(), Error> {
        if self.plan != other.plan {
            let (wanted, found) = (Box::new(self.plan), Box::new(other.plan));
            return Err(Error::Plan { wanted, found });
        }
        if self.locality != other.locality {
            return Err(Error::Division { wanted: self.locality, found: other.locality });
        }
        Ok(())
    }
}

impl fmt::Display for PassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        self.locality.map_or(Ok(()), |locality| write!(f, "/{locality}"))
    }
}

impl FromStr for PassName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wanted = "the name of a pass: VIEW/SEED/EPOCH/SHUFFLE/ORDER-VERSION[/LOCALITY]";
        let mut fields = Fields::new(text, wanted);
        let plan = PlanId::read(&mut fields)?;
        let locality =
            if fields.has_more() { Some(LocalityId::from_u128(fields.hex()?)) } else { None };
        fields.end()?;
        Ok(Self { plan, locality })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DatasetShape, Shuffle, View};
    use super::*;

    fn plan(epoch: u64) -> PlanId {
        let view = View::all([7; 16], DatasetShape::from_rows([10]).unwrap());
        PlanId::new(&view, 3, epoch, Shuffle::Global)
    }

    #[test]
    fn pass_name_has_one_text_form() {
        for locality in [None, Some(LocalityId::from_u128(0xab))] {
            let name = PassName::new(plan(1), locality);
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for wrong in ["", "/", "/ab", "/000000000000000000000000000000ab/"] {
            assert!(format!("{}{wrong}", plan(1)).parse::<PassName>().is_ok() == wrong.is_empty());
        }
    }

    #[test]
    fn error_names_the_difference_between_passes_of_ranks() {
        let name = |epoch, locality: u128| {
            PassName::new(plan(epoch), (locality > 0).then(|| LocalityId::from_u128(locality)))
        };
        assert_eq!(name(1, 5).agrees_with(&name(1, 5)), Ok(()));
        assert!(matches!(name(1, 5).agrees_with(&name(2, 5)), Err(Error::Plan { .. })));
        for other in [0, 6] {
            let error = name(1, 5).agrees_with(&name(1, other)).unwrap_err();
            assert!(error.to_string().contains("one locality"), "{error}");
        }
    }
}
