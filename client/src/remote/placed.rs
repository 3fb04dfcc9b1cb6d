//! Rows that are wanted, and where in the buffers each goes.

use std::{borrow::Cow, ops::Range};

use larder_wire::data::RowRef;

/// Rows of one snapshot for a batch: all of the batch, or those at some places of it, where the
/// others come from other snapshots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) rows: &'a [RowRef],
    /// One for each row, ascending; without them rows stand side by side from the start.
    places: Option<&'a [u32]>,
    /// By tensor, where the rows at each place begin in its buffer, and where the last ends: of
    /// those whose rows differ in length. Empty if none do.
    begins: &'a [Option<&'a [usize]>],
}

/// How long the rows of a tensor are, and so where in its buffer each lies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lengths<'a> {
    /// All have so many bytes.
    Even(usize),
    /// The row at a place begins at the number with its index, and ends where the next begins.
    Ragged(&'a [usize]),
}

impl Lengths<'_> {
    /// Where the row at a place lies.
    pub(crate) fn range(self, place: u32) -> Range<usize> {
        let place = place as usize;
        match self {
            Self::Even(bytes) => place * bytes..(place + 1) * bytes,
            Self::Ragged(begins) => begins[place]..begins[place + 1],
        }
    }

    /// Bytes of the rows at these places.
    pub(crate) fn sum(self, places: &[u32]) -> usize {
        match self {
            Self::Even(bytes) => places.len() * bytes,
            Self::Ragged(_) => places.iter().map(|&place| self.range(place).len()).sum(),
        }
    }
}

impl<'a> Placed<'a> {
    /// Rows that fill a batch, in its order.
    pub(crate) fn all(rows: &'a [RowRef]) -> Self {
        Self { rows, places: None, begins: &[] }
    }

    /// Rows that go to these places, one each, ascending.
    pub(crate) fn at(rows: &'a [RowRef], places: &'a [u32]) -> Self {
        assert_eq!(rows.len(), places.len(), "one place for each row");
        debug_assert!(places.is_sorted_by(|a, b| a < b), "places ascend");
        Self { rows, places: Some(places), begins: &[] }
    }

    /// The same, saying where the rows of ragged tensors begin.
    pub(crate) fn beginning(self, begins: &'a [Option<&'a [usize]>]) -> Self {
        Self { begins, ..self }
    }

    /// Where the rows of a tensor begin, if it is ragged and that was said.
    pub(crate) fn begins(self, slot: usize) -> Option<&'a [usize]> {
        self.begins.get(slot).copied().flatten()
    }

    /// The rows with their places.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u32, RowRef)> {
        let place = move |index: u32| self.places.map_or(index, |places| places[index as usize]);
        (0..).zip(self.rows).map(move |(index, &row)| (place(index), row))
    }

    /// Whether buffers for `room` rows are what these go into.
    pub(crate) fn fits(self, room: usize) -> bool {
        match self.places {
            None => self.rows.len() == room,
            Some(places) => places.last().is_none_or(|&last| (last as usize) < room),
        }
    }

    /// By place, the row that goes there. At places that nothing goes to stands the first row of
    /// all.
    pub(crate) fn by_place(self) -> Cow<'a, [RowRef]> {
        let Some(places) = self.places else { return Cow::Borrowed(self.rows) };
        let room = places.last().map_or(0, |&last| last as usize + 1);
        let mut rows = vec![RowRef { shard: 0, row: 0 }; room];
        places.iter().zip(self.rows).for_each(|(&place, &row)| rows[place as usize] = row);
        Cow::Owned(rows)
    }
}

impl<'a> From<&'a [RowRef]> for Placed<'a> {
    fn from(rows: &'a [RowRef]) -> Self {
        Self::all(rows)
    }
}
