//! Bytes that the scans of an index read, kept until shards hold them.
//!
//! A scan of tars with small members reads whole files. The node keeps these bytes in free memory
//! while it indexes a prefix, and fills take them in place of a request to the origin. They are of
//! one version of an object, read under the same checks as a fill's reads.
//!
//! Retained bytes count in the budget as bytes that are being filled. They take no room of a shard,
//! and are the first to leave when memory is needed: those at the end of the last file first, which
//! the first fills need last.
//!
//! Thread rule: shared freely. The lock is held for microseconds, and never while the cache's lock
//! is taken. Non-goals: the fills themselves, and which of them come first.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_base::ShardId;
use larder_dataset::{OriginUri, ReadKeeper};
use larder_extent::{ExtentLayout, Region, Sealed};

use super::manifest::filled;
use super::{Cache, ReservedBytes};

/// Retained bytes between two gaps are read with the gaps if they are fewer. The transfer takes
/// less time than one more request.
const BETWEEN_GAPS_BYTES_MIN: u64 = 256 << 10;

/// What is left of a read when one part in this many is not used yet: headers and padding between
/// the rows of two fills.
const UNUSED_SHARE: u64 = 16;

/// The retained reads of all indexes.
#[derive(Debug, Default)]
pub(crate) struct Retained(Mutex<Reads>);

/// Reads by object and offset.
type Reads = BTreeMap<(OriginUri, u64), Arc<ScanRead>>;

/// One read of a scan.
#[derive(Debug)]
struct ScanRead {
    /// The version of the object.
    etag: String,
    /// The bytes that no fill has used.
    unused: AtomicU64,
    /// The index that read them.
    index: u64,
    sealed: Sealed,
    room: ReservedBytes,
}

impl ScanRead {
    fn bytes(&self) -> &[u8] {
        self.sealed.region(0)
    }
}

/// A stretch of a range to read.
#[derive(Debug)]
pub(crate) enum FoundRange {
    /// Its bytes are here.
    Here(BytesHere),
    /// It must be read.
    Missing(Range<u64>),
}

impl FoundRange {
    /// Returns its bytes, if they are here.
    pub(crate) fn here(self) -> Option<BytesHere> {
        match self {
            Self::Here(bytes) => Some(bytes),
            Self::Missing(_) => None,
        }
    }
}

/// Bytes of a retained read. They stay while this lives.
#[derive(Debug)]
pub(crate) struct BytesHere(Arc<ScanRead>, Range<usize>);

impl AsRef<[u8]> for BytesHere {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes()[self.1.clone()]
    }
}

impl Retained {
    /// Returns whether nothing is retained.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns the memory that retained bytes take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.lock().values().map(|read| read.room.bytes()).sum()
    }

    /// Cuts a range of an object, in order, into stretches that are here and that are missing.
    pub(crate) fn find(
        &self,
        object: &OriginUri,
        etag: Option<&str>,
        range: &Range<u64>,
    ) -> Vec<FoundRange> {
        let (mut found, mut at) = (Vec::new(), range.start);
        for (start, read) in self.overlapping(object, etag, range) {
            let here = start.max(at)..range.end.min(start + read.bytes().len() as u64);
            let is_between = here.start > at && here.end < range.end;
            if here.is_empty() || is_between && here.end - here.start < BETWEEN_GAPS_BYTES_MIN {
                continue;
            }
            if here.start > at {
                found.push(FoundRange::Missing(at..here.start));
            }
            at = here.end;
            let place = |offset: u64| usize::try_from(offset - start).expect("it is in memory");
            let place = place(here.start)..place(here.end);
            found.push(FoundRange::Here(BytesHere(read, place)));
        }
        if at < range.end {
            found.push(FoundRange::Missing(at..range.end));
        }
        found
    }

    /// Notes that a fill used a range. Lets go of reads of which nearly all is used.
    pub(crate) fn used(&self, object: &OriginUri, etag: Option<&str>, range: &Range<u64>) {
        for (start, read) in self.overlapping(object, etag, range) {
            let bytes = read.bytes().len() as u64;
            let used = range.end.min(start + bytes).saturating_sub(range.start.max(start));
            let less = |unused: u64| Some(unused.saturating_sub(used));
            let before = read.unused.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            if before.is_ok_and(|unused| unused.saturating_sub(used) <= bytes / UNUSED_SHARE) {
                let gone = self.lock().remove(&(object.clone(), start));
                drop(gone);
            }
        }
    }

    /// Lets go of the last reads, until their memory is at least this.
    fn let_go(&self, bytes: u64) {
        let (mut gone, mut missing) = (Vec::new(), bytes);
        let mut reads = self.lock();
        while missing > 0
            && let Some((_, read)) = reads.pop_last()
        {
            missing = missing.saturating_sub(read.room.bytes());
            gone.push(read);
        }
        drop(reads);
        drop(gone);
    }

    /// Lets go of all reads of an index.
    fn let_go_of(&self, index: u64) {
        let gone: Vec<_> = self.lock().extract_if(.., |_, read| read.index == index).collect();
        drop(gone);
    }

    /// Lets go of all reads.
    pub(super) fn clear(&self) {
        let gone = std::mem::take(&mut *self.lock());
        drop(gone);
    }

    /// Returns the reads that overlap a range, by their offsets.
    fn overlapping(
        &self,
        object: &OriginUri,
        etag: Option<&str>,
        range: &Range<u64>,
    ) -> Vec<(u64, Arc<ScanRead>)> {
        let reads = self.lock();
        if reads.is_empty() || range.is_empty() {
            return Vec::new();
        }
        let key = |at: u64| (object.clone(), at);
        let before = reads.range(key(0)..=key(range.start)).next_back();
        let after = (Bound::Excluded(key(range.start)), Bound::Excluded(key(range.end)));
        let near = before.into_iter().chain(reads.range(after));
        let overlaps = |(start, read): &(u64, Arc<ScanRead>)| {
            Some(&*read.etag) == etag && start + read.bytes().len() as u64 > range.start
        };
        near.map(|((_, start), read)| (*start, Arc::clone(read))).filter(overlaps).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Reads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reads of one index. Drop lets go of those that are left.
#[derive(Debug)]
pub(crate) struct IndexReads {
    cache: Arc<Cache>,
    index: u64,
}

impl IndexReads {
    /// Begins with no reads.
    pub(crate) fn new(cache: &Arc<Cache>) -> Arc<Self> {
        Arc::new(Self { cache: Arc::clone(cache), index: fastrand::u64(..) })
    }

    fn retain(&self, etag: &str, bytes: &[u8]) -> Option<Arc<ScanRead>> {
        let unused = AtomicU64::new(bytes.len() as u64);
        let layout = ExtentLayout::new(&[Region::Blocks { bytes: bytes.len() as u64 }]).ok()?;
        let room = self.cache.reserve_free(layout.total_bytes())?;
        // The extent is this process's own, so its name is of no use.
        let sealed = filled(ShardId::from_bytes([0; 16]), layout, bytes).ok()?;
        Some(Arc::new(ScanRead { etag: etag.to_owned(), unused, index: self.index, sealed, room }))
    }
}

impl ReadKeeper for IndexReads {
    fn keep(&self, object: &OriginUri, etag: &str, offset: u64, bytes: &[u8]) {
        if let Some(read) = self.retain(etag, bytes) {
            let before = self.cache.retained.lock().insert((object.clone(), offset), read);
            drop(before);
        }
    }
}

impl Drop for IndexReads {
    fn drop(&mut self) {
        self.cache.retained.let_go_of(self.index);
    }
}

impl Cache {
    /// Lets go of retained bytes, so that `bytes` fit without the eviction of a shard.
    pub(super) fn spare_retained(&self, bytes: u64) {
        if self.retained.is_empty() {
            return;
        }
        let missing = {
            let state = self.lock();
            let budget = state.store.budget();
            bytes.saturating_sub(budget.free_bytes()).max(u64::from(!budget.has_place()))
        };
        self.retained.let_go(missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: Option<&str> = Some("\"a\"");

    fn object() -> OriginUri {
        OriginUri::parse("s3://b/p/0.tar").unwrap()
    }

    /// Retains reads of these ranges, in which each byte tells its place.
    fn retained(cache: &Arc<Cache>, ranges: &[Range<u64>]) -> Arc<IndexReads> {
        let reads = IndexReads::new(cache);
        for range in ranges {
            let bytes: Vec<u8> = range.clone().map(|at| at.to_le_bytes()[1]).collect();
            reads.keep(&object(), ETAG.unwrap(), range.start, &bytes);
        }
        reads
    }

    /// Returns the missing ranges of a range. Checks the bytes of the others.
    fn missing(cache: &Arc<Cache>, etag: Option<&str>, range: Range<u64>) -> Vec<(u64, u64)> {
        let (mut at, mut missing) = (range.start, Vec::new());
        for found in cache.retained().find(&object(), etag, &range) {
            match found {
                FoundRange::Here(here) => {
                    let right = (at..).map(|at| at.to_le_bytes()[1]);
                    assert!(here.as_ref().iter().copied().eq(right.take(here.as_ref().len())));
                    at += here.as_ref().len() as u64;
                }
                FoundRange::Missing(range) => {
                    assert_eq!(range.start, at);
                    at = range.end;
                    missing.push((range.start, range.end));
                }
            }
        }
        assert_eq!(at, range.end);
        missing
    }

    #[test]
    fn range_is_cut_into_what_is_here_and_what_is_missing() {
        let cache = crate::testing::cache(8 << 20);
        let reads = [0..65_536, 65_536..400_000, 500_000..600_000, 700_000..1_000_000];
        let _reads = retained(&cache, &reads);
        assert_eq!(missing(&cache, ETAG, 512..400_000), []);
        assert_eq!(missing(&cache, ETAG, 300_000..450_000), [(400_000, 450_000)]);
        let around = missing(&cache, ETAG, 399_000..1_100_000);
        // The read between the first two gaps is short.
        assert_eq!(around, [(400_000, 700_000), (1_000_000, 1_100_000)]);
        assert_eq!(missing(&cache, Some("\"b\""), 0..100), [(0, 100)]);
        assert_eq!(missing(&cache, None, 0..100), [(0, 100)]);
    }

    #[test]
    fn reads_leave_when_used_or_when_their_index_ends() {
        let cache = crate::testing::cache(8 << 20);
        let reads = retained(&cache, &[0..65_536, 65_536..131_072]);
        assert_eq!(cache.usage().filling.bytes, cache.retained().memory_bytes());
        cache.retained().used(&object(), ETAG, &(512..70_000));
        assert_eq!(missing(&cache, ETAG, 0..131_072), [(0, 65_536)]);
        drop(reads);
        assert!(cache.retained().is_empty());
        assert_eq!(cache.usage().filling.bytes, 0);
    }

    #[test]
    fn reads_take_free_memory_only_and_leave_last_first() {
        let cache = crate::testing::cache(1 << 20);
        let reserved = cache.reserve(700 << 10).unwrap();
        let _reads = retained(&cache, &[0..100_000, 100_000..200_000, 200_000..900_000]);
        assert_eq!(missing(&cache, ETAG, 0..900_000), [(200_000, 900_000)]);
        let more = cache.reserve(200 << 10).unwrap();
        assert_eq!(missing(&cache, ETAG, 0..200_000), [(100_000, 200_000)]);
        drop((reserved, more));
    }
}
