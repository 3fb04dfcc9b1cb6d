//! Wanted rows, and the place of each in the buffers.

use std::{borrow::Cow, ops::Range};

use larder_base::RowRef;

/// Rows of one snapshot for a batch: all rows, or the rows at some places while the others come
/// from other snapshots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) rows: &'a [RowRef],
    /// One for each row, ascending. If absent, rows lie side by side from the start.
    places: Option<&'a [u32]>,
    /// For each ragged tensor, the offset of each place in its buffer, and the end of the last.
    /// Empty if no tensor is ragged.
    begins: &'a [Option<&'a [usize]>],
}

/// The lengths of a tensor's rows, and so their offsets in its buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lengths<'a> {
    /// All rows have this many bytes.
    Even(usize),
    /// The offset of each place. A row ends where the next begins.
    Ragged(&'a [usize]),
}

impl Lengths<'_> {
    /// The range of the row at a place.
    pub(crate) fn range(self, place: u32) -> Range<usize> {
        let place = place as usize;
        match self {
            Self::Even(bytes) => place * bytes..(place + 1) * bytes,
            Self::Ragged(begins) => begins[place]..begins[place + 1],
        }
    }

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

    /// Rows for these places, one each, ascending.
    pub(crate) fn at(rows: &'a [RowRef], places: &'a [u32]) -> Self {
        assert_eq!(rows.len(), places.len(), "one place for each row");
        debug_assert!(places.is_sorted_by(|a, b| a < b), "places ascend");
        Self { rows, places: Some(places), begins: &[] }
    }

    /// Adds the offsets of ragged tensors.
    pub(crate) fn beginning(self, begins: &'a [Option<&'a [usize]>]) -> Self {
        Self { begins, ..self }
    }

    /// The offsets of a tensor, if it is ragged and they were given.
    pub(crate) fn begins(self, slot: usize) -> Option<&'a [usize]> {
        self.begins.get(slot).copied().flatten()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = (u32, RowRef)> {
        let place = move |index: u32| self.places.map_or(index, |places| places[index as usize]);
        (0..).zip(self.rows).map(move |(index, &row)| (place(index), row))
    }

    /// Whether the rows fit buffers for `room` rows.
    pub(crate) fn fits(self, room: usize) -> bool {
        match self.places {
            None => self.rows.len() == room,
            Some(places) => places.last().is_none_or(|&last| (last as usize) < room),
        }
    }

    /// The row of each place. Places without a row hold row 0 of shard 0.
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
