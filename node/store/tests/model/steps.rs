//! Random requests to the store, and its possible answers.

use larder_store::{CannotEvict, LeaseRefused, NoRoom, Released, Why};
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) type Id = u8;
pub(crate) type Group = char;
pub(crate) type Holder = u64;

pub(crate) const LIMIT: u64 = 100;
pub(crate) const QUOTA: u64 = 50;
/// Small shards reach this limit before the one in bytes.
pub(crate) const SHARDS_MAX: usize = 5;
/// The last shard fits into no budget.
const IDS: std::ops::Range<Id> = 0..8;

pub(crate) fn bytes_of(id: Id) -> u64 {
    if id == 7 { LIMIT + 1 } else { 10 * (1 + u64::from(id % 4)) }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Request {
        id: Id,
        group: Group,
    },
    Get {
        id: Id,
        group: Group,
    },
    End {
        id: Id,
        ending: Ending,
    },
    EndStale {
        ending: Ending,
    },
    Revoke {
        id: Id,
    },
    Leave {
        id: Id,
    },
    LeaveLate,
    Lease {
        id: Id,
        holder: Holder,
    },
    Release {
        id: Id,
        holder: Holder,
    },
    ReleaseAll {
        holder: Holder,
    },
    Evict {
        id: Id,
    },
    Freed {
        index: usize,
    },
    /// Shards as bits. The shards to give up come from the last one, or from the first.
    Foresee {
        fetches: u8,
        given_up: u8,
        from_last: bool,
    },
    Open {
        group: Group,
    },
    Close {
        group: Group,
    },
    Advance {
        seconds: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Complete { handle: u32 },
    Fail,
    GiveUp,
}

/// The answer to a step; `Nothing` also when no caller held the token it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    Resident(u32),
    InFlight(u32),
    Admitted(u32),
    NoRoom(NoRoom, Vec<Id>),
    Got(Option<u32>),
    Completed(u32),
    Stale,
    Retry { handle: u32, waiters: usize },
    Dropped(u32),
    Leased(Result<u32, LeaseRefused>),
    Ended(bool),
    Released(Released<Id>),
    Evicted(Result<Id, CannotEvict>),
}

impl Said {
    pub(crate) const NAMES: &[&str] = &[
        "resident",
        "in flight",
        "admitted",
        "too large",
        "leaving",
        "in use",
        "no place",
        "evicting",
        "got",
        "completed",
        "stale",
        "retry",
        "dropped",
        "leased",
        "over quota",
        "ended",
        "released",
        "evicted",
        "leased still",
    ];

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Resident(_) => "resident",
            Self::InFlight(_) => "in flight",
            Self::Admitted(_) => "admitted",
            Self::NoRoom(_, evicted) if !evicted.is_empty() => "evicting",
            Self::NoRoom(NoRoom { why, .. }, _) => match why {
                Why::LargerThanBudget { .. } => "too large",
                Why::Leaving => "leaving",
                Why::InUse => "in use",
                Why::NoPlace { .. } => "no place",
            },
            Self::Got(Some(_)) => "got",
            Self::Completed(_) => "completed",
            Self::Stale => "stale",
            Self::Retry { .. } => "retry",
            Self::Dropped(_) => "dropped",
            Self::Leased(Ok(_)) => "leased",
            Self::Leased(Err(LeaseRefused::OverQuota { .. })) => "over quota",
            Self::Ended(true) => "ended",
            Self::Released(released) if !released.ids.is_empty() => "released",
            Self::Evicted(Ok(_)) => "evicted",
            Self::Evicted(Err(CannotEvict::Leased { .. })) => "leased still",
            _ => "nothing",
        }
    }
}

/// Mostly steps that find something to do.
pub(crate) fn any_step(filling: &[Id], resident: &[Id]) -> BoxedStrategy<Step> {
    let group = || prop_oneof![3 => Just('a'), 2 => Just('b'), 1 => Just('c')];
    let holder = || 0..3_u64;
    let filling = || mostly(filling);
    let resident = || mostly(resident);
    let ending = || {
        prop_oneof![
            4 => (1_000..2_000_u32).prop_map(|handle| Ending::Complete { handle }),
            1 => Just(Ending::Fail),
            1 => Just(Ending::GiveUp),
        ]
    };
    prop_oneof![
        12 => (IDS, group()).prop_map(|(id, group)| Step::Request { id, group }),
        2 => (IDS, group()).prop_map(|(id, group)| Step::Get { id, group }),
        6 => (filling(), ending()).prop_map(|(id, ending)| Step::End { id, ending }),
        1 => ending().prop_map(|ending| Step::EndStale { ending }),
        1 => filling().prop_map(|id| Step::Revoke { id }),
        2 => filling().prop_map(|id| Step::Leave { id }),
        1 => Just(Step::LeaveLate),
        2 => (resident(), holder()).prop_map(|(id, holder)| Step::Lease { id, holder }),
        4 => (resident(), holder()).prop_map(|(id, holder)| Step::Release { id, holder }),
        2 => holder().prop_map(|holder| Step::ReleaseAll { holder }),
        1 => resident().prop_map(|id| Step::Evict { id }),
        4 => any::<usize>().prop_map(|index| Step::Freed { index }),
        2 => any::<(u8, u8, bool)>().prop_map(|(fetches, given_up, from_last)| {
            Step::Foresee { fetches, given_up, from_last }
        }),
        1 => group().prop_map(|group| Step::Open { group }),
        4 => group().prop_map(|group| Step::Close { group }),
        8 => select(vec![1, 2, 300, 599, 600, 1_500])
            .prop_map(|seconds| Step::Advance { seconds }),
    ]
    .boxed()
}

/// The shards of these bits, in order.
pub(crate) fn shards(bits: u8) -> impl DoubleEndedIterator<Item = Id> {
    IDS.filter(move |id| bits & 1 << id != 0)
}

/// The shards of these bits, in order or from the last one.
pub(crate) fn ordered(bits: u8, from_last: bool) -> Vec<Id> {
    if from_last { shards(bits).rev().collect() } else { shards(bits).collect() }
}

fn mostly(ids: &[Id]) -> BoxedStrategy<Id> {
    match ids {
        [] => IDS.boxed(),
        _ => prop_oneof![5 => select(ids.to_vec()), 1 => IDS].boxed(),
    }
}
