//! The open datasets of this node.
//!
//! Opening a dataset resolves its tag to a snapshot, and puts the snapshot's manifest into a sealed
//! extent that clients map. The extent stays while the dataset is open. Only datasets under one of
//! the `--origin` prefixes are opened: clients name datasets, never arbitrary addresses. In local
//! folders this also applies to the targets of links, because users other than the operator may
//! write there.
//!
//! Thread rule: `open` is async and may take minutes (it indexes an unindexed prefix). The other
//! functions lock for microseconds. Non-goal: knowing the users of a dataset. Only the caller that
//! it was opened for is known: see [shares].

mod identities;
pub(crate) mod leaves;
mod open_budget;
mod queue;
mod shares;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, mem};

use futures_util::future::BoxFuture;
use larder_base::{Error, ErrorKind, SnapshotId, limits};
use larder_dataset::{
    DatasetError, DatasetRef, IndexProgress, LeftOut, Manifest, OpenedManifest as Resolved, Origin,
    OriginError, OriginUri, PathAllowlist, Variables, WritePolicy, home_beside, home_of, open_in,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time;

use crate::cache::{Cache, IndexReads};
use crate::dataset::bucket::Buckets;
use crate::dataset::{Dataset, SealedBytes};
use crate::{clock, on_thread};
use identities::Identities;
use open_budget::{NodeOpenBudget, OpenRequest};
use queue::Queues;
use shares::Shares;

pub(crate) use identities::{IdentityId, OWN};
pub(crate) use queue::ResolveTurn;
pub(crate) use shares::Requester;

/// Prefixes that a node takes from its owner's processes: each is checked when a dataset is opened.
const PREFIXES_ADMITTED_MAX: usize = 1_024;

/// Time after which an unused ticket is forgotten; the client opens the dataset again.
const TICKET_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The open datasets.
pub(crate) struct Catalog {
    prefixes: Mutex<Vec<OriginUri>>,
    /// Limits reads to those prefixes that are local folders, unless links are followed.
    fence: Option<PathAllowlist>,
    cache: Arc<Cache>,
    identities: Identities,
    budget: NodeOpenBudget,
    state: Mutex<State>,
    /// Held while a manifest is put into memory, since two references may name one snapshot.
    keeping: tokio::sync::Mutex<()>,
    buckets: Buckets,
    first_fill: Option<FirstFill>,
}

/// Called with a dataset that was indexed just now and what its scans read, before callers get it.
pub(crate) type FirstFill =
    Box<dyn Fn(Arc<Dataset>, Arc<IndexReads>) -> BoxFuture<'static, ()> + Send + Sync>;

#[derive(Debug, Default)]
struct State {
    open: HashMap<SnapshotId, Arc<Dataset>>,
    /// The snapshot that each reference last resolved to, for use while the origin is away.
    resolved: HashMap<Reference, SnapshotId>,
    shares: Shares,
    /// The callers that wait for each reference, so that it is read and indexed only once.
    queues: Queues,
}

/// A requested dataset: its address with the tag, the place of its manifest, and its reader.
type Reference = (String, Option<OriginUri>, IdentityId);

/// A dataset that a caller wants open.
#[derive(Debug, Clone)]
pub(crate) struct WantedDataset {
    /// Its address and tag.
    pub(crate) dataset: DatasetRef,
    /// The place of its manifest, if not found from its address.
    pub(crate) manifest: Option<OriginUri>,
    /// Whether an index may write beside the data. `None`: as this node is configured.
    pub(crate) write: Option<WritePolicy>,
    /// The caller.
    pub(crate) requester: Requester,
    /// The keys that open it.
    pub(crate) identity: IdentityId,
}

/// A dataset, and how it was opened.
#[derive(Debug, Clone)]
pub(crate) struct OpenedDataset {
    /// The dataset.
    pub(crate) dataset: Arc<Dataset>,
    /// It had no manifest, and was indexed for this call.
    pub(crate) indexed_now: bool,
    /// The files that the indexing left out.
    pub(crate) left_out: Vec<LeftOut>,
}

/// The outcome of one attempt to open a dataset.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// It is open.
    Opened(OpenedDataset),
    /// It must be indexed, and others are being indexed. The turn is still the caller's.
    MustIndex(ResolveTurn),
}

/// The result of queueing for a dataset.
#[derive(Debug)]
pub(crate) enum Queued {
    /// It is open.
    Open(Arc<Dataset>),
    /// The caller must open it.
    Turn(ResolveTurn),
}

impl WantedDataset {
    /// Wants a dataset for the node itself.
    pub(crate) fn by_node(dataset: DatasetRef, manifest: Option<OriginUri>) -> Self {
        Self { dataset, manifest, write: None, requester: Requester::Node, identity: OWN }
    }

    fn reference(&self) -> Reference {
        (self.dataset.to_string(), self.manifest.clone(), self.identity)
    }
}

impl OpenedDataset {
    pub(crate) fn as_it_was(dataset: Arc<Dataset>) -> Self {
        Self { dataset, indexed_now: false, left_out: Vec::new() }
    }
}

impl Catalog {
    /// Creates an empty catalog for datasets under `prefixes`.
    pub(crate) fn new(prefixes: Vec<OriginUri>, cache: Arc<Cache>) -> Self {
        let fence = Some(PathAllowlist::new(&prefixes));
        let (prefixes, state) = (Mutex::new(prefixes), Mutex::default());
        let budget = NodeOpenBudget::new(&cache);
        let (keeping, buckets) = (tokio::sync::Mutex::default(), Buckets::default());
        let identities = Identities::of_process();
        let first_fill = None;
        Self { prefixes, fence, cache, identities, budget, state, keeping, buckets, first_fill }
    }

    /// Follows links in local folders wherever they lead. For a private node: its user may read
    /// those files anyway.
    pub(crate) fn following_links(self) -> Self {
        Self { fence: None, ..self }
    }

    /// Retains what scans of an index read, for the first fills of its shards.
    pub(crate) fn with_first_fill(self, first_fill: FirstFill) -> Self {
        Self { first_fill: Some(first_fill), ..self }
    }

    /// Returns the prefixes that datasets may lie under.
    pub(crate) fn prefixes(&self) -> Vec<OriginUri> {
        self.lock_prefixes().clone()
    }

    /// Adds a prefix. Only for the owner of a private node: that user could start it with any
    /// prefix. If there are too many, the one that was admitted first leaves, of those without an
    /// open dataset and not `given` at the start.
    ///
    /// # Errors
    /// `ResourceExhausted` if all prefixes have open datasets.
    pub(crate) fn admit(&self, prefix: &OriginUri, given: &[OriginUri]) -> Result<(), Error> {
        let open = self.list();
        let mut prefixes = self.lock_prefixes();
        if prefixes.iter().any(|known| prefix.starts_with(known)) {
            return Ok(());
        }
        if prefixes.len() >= PREFIXES_ADMITTED_MAX {
            let is_needed = |prefix: &OriginUri| {
                let mut read = open.iter().flat_map(|one| [one.uri(), one.manifest_uri()]);
                given.contains(prefix) || read.any(|uri| uri.starts_with(prefix))
            };
            let Some(unneeded) = prefixes.iter().position(|prefix| !is_needed(prefix)) else {
                let max = PREFIXES_ADMITTED_MAX;
                let message = format!(
                    "datasets under {max} prefixes are open on the node, the most it takes; end \
                     processes that read them"
                );
                return Err(Error::new(ErrorKind::ResourceExhausted, message));
            };
            prefixes.remove(unneeded);
        }
        prefixes.push(prefix.clone());
        Ok(())
    }

    /// Takes the variables of a program. They replace those that it handed over before: datasets
    /// that were opened with those are read with the new ones from now on. For the owner of a
    /// private node only.
    ///
    /// # Errors
    /// The origin's error if the new variables can't be used.
    pub(crate) async fn take_variables(
        &self,
        variables: &Variables,
        before: Option<IdentityId>,
    ) -> Result<IdentityId, Error> {
        let before = before.and_then(|before| self.identities.get(before));
        for dataset in self.list() {
            let origin = dataset.origin();
            let was_read = before.as_ref().is_some_and(|before| origin.has_way_by(before));
            if was_read && !origin.has_way_by(variables) {
                origin.also_by(&self.origin(dataset.uri(), variables).await?);
            }
        }
        Ok(self.identities.note(variables))
    }

    /// Opens a dataset. While the origin is away, a reference resolves to the same snapshot as
    /// before.
    ///
    /// # Errors
    /// - `PermissionDenied` outside the node's prefixes, or with a manifest from elsewhere.
    /// - The origin's or the manifest's error.
    /// - `ResourceExhausted` without room for one more dataset, or for its manifest.
    pub(crate) async fn open(&self, wanted: &WantedDataset) -> Result<OpenedDataset, Error> {
        match self.queue(wanted).await? {
            Queued::Open(dataset) => Ok(OpenedDataset::as_it_was(dataset)),
            Queued::Turn(turn) => {
                let attempt = |turn, may_index| self.attempt(turn, wanted, may_index);
                self.open_in_turn(turn, attempt).await
            }
        }
    }

    /// Waits until the dataset is open, or it is the caller's turn to open it. Reads nothing.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) async fn queue(&self, wanted: &WantedDataset) -> Result<Queued, Error> {
        let WantedDataset { dataset, manifest, .. } = wanted;
        self.check_allowed(dataset.uri())?;
        manifest.as_ref().map_or(Ok(()), |manifest| self.check_home(dataset.uri(), manifest))?;
        if let Some(dataset) = self.pinned(wanted) {
            return Ok(Queued::Open(dataset));
        }
        let queue = self.lock().queues.of(&wanted.reference());
        match queue.wait().await {
            Ok(found) => found.map(Queued::Open),
            Err(turn) => Ok(Queued::Turn(turn)),
        }
    }

    /// Returns how far the opening of a dataset has indexed its prefix, `None` if it has not begun
    /// to. And why its store keeps it waiting, if it does.
    ///
    /// # Errors
    /// `NotFound` if the dataset is not being opened.
    pub(crate) fn open_progress(
        &self,
        dataset: &DatasetRef,
        manifest: Option<&OriginUri>,
    ) -> Result<(Option<IndexProgress>, Option<String>), Error> {
        let queue = self.lock().queues.find(&dataset.to_string(), manifest).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{dataset} is not being opened here"))
        })?;
        Ok(queue.progress())
    }

    /// Opens a dataset by attempts. If it must be indexed while enough others are, waits for
    /// permission between two attempts, so that nothing is held meanwhile.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) async fn open_in_turn<F>(
        &self,
        turn: ResolveTurn,
        attempt: impl Fn(ResolveTurn, Option<OwnedSemaphorePermit>) -> F,
    ) -> Result<OpenedDataset, Error>
    where
        F: Future<Output = Result<Attempt, Error>> + Send,
    {
        let turn = match attempt(turn, None).await? {
            Attempt::Opened(opened) => return Ok(opened),
            Attempt::MustIndex(turn) => turn,
        };
        let may_index = self.budget.turn_to_index().await;
        match attempt(turn, Some(may_index)).await? {
            Attempt::Opened(opened) => Ok(opened),
            Attempt::MustIndex(_) => {
                Err(Error::new(ErrorKind::Internal, "it was indexed without permission"))
            }
        }
    }

    /// Opens a dataset for all callers that wait for it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) async fn attempt(
        &self,
        turn: ResolveTurn,
        wanted: &WantedDataset,
        may_index: Option<OwnedSemaphorePermit>,
    ) -> Result<Attempt, Error> {
        let request = OpenRequest::new(self, wanted.write, may_index, turn.queue());
        let opened = self.open_alone(wanted, &request).await;
        if opened.is_err() && request.must_index() {
            return Ok(Attempt::MustIndex(turn));
        }
        let is_refused = |error: &Error| error.kind() == ErrorKind::ResourceExhausted;
        if opened.as_ref().is_err_and(is_refused) && self.lock().shares.is_full(wanted.requester) {
            // It is no answer to the other callers: they take turns of their own.
            return opened.map(Attempt::Opened);
        }
        turn.end(opened.as_ref().map(|opened| Arc::clone(&opened.dataset)).map_err(Error::clone));
        opened.map(Attempt::Opened)
    }

    async fn open_alone(
        &self,
        wanted: &WantedDataset,
        request: &OpenRequest<'_>,
    ) -> Result<OpenedDataset, Error> {
        let reference = wanted.reference();
        let before = self.meant_before(&reference);
        let mut resolving = Box::pin(self.resolve(wanted, request));
        let patience = limits::ORIGIN_FIRST_BYTE_TIMEOUT;
        let resolved = match time::timeout(patience, &mut resolving).await {
            Ok(resolved) => resolved,
            Err(_) if before.is_some() && !request.is_answered() => {
                Err(silent(wanted.dataset.uri(), patience))
            }
            Err(_) => resolving.await,
        };
        match resolved {
            Ok((mut resolved, origin)) => {
                let indexed_now = resolved.indexed_now;
                let left_out = mem::take(&mut resolved.left_out);
                let dataset = self.keep(resolved, origin, wanted.requester).await?;
                self.remember(reference, dataset.snapshot());
                if let (Some(first_fill), Some(reads)) = (&self.first_fill, request.take_reads()) {
                    first_fill(Arc::clone(&dataset), reads).await;
                }
                Ok(OpenedDataset { dataset, indexed_now, left_out })
            }
            Err(error) => match before.filter(|before| !request.names_another_than(before)) {
                Some(before) if error.kind() == ErrorKind::OriginUnavailable => {
                    let snapshot = before.snapshot();
                    let name = &wanted.dataset;
                    tracing::warn!("{name} is taken for snapshot {snapshot}, as before: {error}");
                    Ok(OpenedDataset::as_it_was(before))
                }
                _ => Err(error),
            },
        }
    }

    /// Returns the open dataset with this snapshot.
    pub(crate) fn get(&self, snapshot: SnapshotId) -> Option<Arc<Dataset>> {
        let found = self.lock().open.get(&snapshot).cloned();
        found.inspect(|dataset| dataset.touch(clock::now()))
    }

    /// Returns the open dataset with this snapshot, or `NotFound`.
    pub(crate) fn opened(&self, snapshot: SnapshotId) -> Result<Arc<Dataset>, Error> {
        self.get(snapshot).ok_or_else(|| {
            let message = format!("snapshot {snapshot} is not open here; open it first");
            Error::new(ErrorKind::NotFound, message)
        })
    }

    /// Returns all open datasets, by snapshot.
    pub(crate) fn list(&self) -> Vec<Arc<Dataset>> {
        let mut all: Vec<_> = self.lock().open.values().cloned().collect();
        all.sort_unstable_by_key(|dataset| dataset.snapshot());
        all
    }

    /// Returns the open datasets that are in use, or were within the hour.
    pub(crate) fn list_used(&self) -> Vec<Arc<Dataset>> {
        let now = clock::now();
        let state = self.lock();
        state.open.values().filter(|dataset| !is_idle(dataset, now)).cloned().collect()
    }

    async fn resolve(
        &self,
        wanted: &WantedDataset,
        request: &OpenRequest<'_>,
    ) -> Result<(Resolved, Origin), Error> {
        let WantedDataset { dataset, manifest, .. } = wanted;
        let variables = self.identities.get(wanted.identity).ok_or_else(|| {
            let what = "this node has forgotten the variables of the program";
            Error::new(ErrorKind::Unavailable, format!("{what}; open the dataset again"))
        })?;
        let origin = self.origin(dataset.uri(), &variables).await?;
        request.reads(&origin);
        let opened = Box::pin(open_in(&origin, dataset, manifest.as_ref(), request)).await;
        let opened = opened.map_err(dataset_error)?;
        // A manifest is data too: it may name data outside the prefixes.
        self.check_allowed(opened.manifest.uri())?;
        Ok((opened, origin))
    }

    /// Returns access to an address by one identity: that of an open dataset in the same bucket, or
    /// a new one.
    async fn origin(&self, uri: &OriginUri, variables: &Variables) -> Result<Origin, Error> {
        let by_identity = |dataset: &Arc<Dataset>| {
            let origin = Some(dataset.origin()).filter(|origin| origin.serves(uri))?;
            origin.only_by(variables)
        };
        let known = self.lock().open.values().find_map(by_identity);
        match known {
            Some(origin) => Ok(origin),
            None => {
                let origin = Origin::connect_by(uri, variables).await.map_err(origin_error)?;
                Ok(origin.within(self.fence.clone()))
            }
        }
    }

    /// Puts a manifest into shared memory and its dataset into the catalog, unless it is open
    /// already. `origin` has the identity of the caller, and read the manifest. An open
    /// dataset is read with this identity too, if it may read the data.
    async fn keep(
        &self,
        resolved: Resolved,
        origin: Origin,
        requester: Requester,
    ) -> Result<Arc<Dataset>, Error> {
        let Resolved { manifest, location, leaf_files, .. } = resolved;
        let snapshot = manifest.snapshot();
        let _one_at_a_time = self.keeping.lock().await;
        if let Some(dataset) = self.get(snapshot) {
            identities::read_by_too(&dataset, &leaf_files, &origin).await?;
            return Ok(dataset);
        }
        self.make_room(requester, clock::now())?;
        let cache = Arc::clone(&self.cache);
        let kept = move || {
            let extent = cache.keep_manifest(snapshot, manifest.as_bytes())?;
            // Parsed again in its extent, so that the private copy can be dropped.
            match Manifest::over(Arc::new(SealedBytes(Arc::clone(&extent)))) {
                Ok(manifest) => Ok((manifest, extent)),
                Err(why) => {
                    cache.drop_manifest(snapshot);
                    Err(Error::new(ErrorKind::DataLoss, why.to_string()))
                }
            }
        };
        let (manifest, extent) = on_thread(kept).await?;
        let (uri, now) = (location.uri().clone(), clock::now());
        let bucket = self.buckets.of(&origin);
        let dataset = Dataset::new(manifest, extent, uri, leaf_files, origin, bucket, now);
        let dataset = Arc::new(dataset);
        let mut state = self.lock();
        state.shares.note(snapshot, requester);
        state.open.insert(snapshot, Arc::clone(&dataset));
        Ok(dataset)
    }

    /// Closes the least recently used dataset if the catalog is full, or one of the requester's own
    /// if its share is.
    fn make_room(&self, requester: Requester, now: Instant) -> Result<(), Error> {
        let mut state = self.lock();
        let full = state.shares.check(requester);
        let Err(full) = full else { return Ok(()) };
        let may_close = |one: &&Arc<Dataset>| {
            is_idle(one, now) && state.shares.makes_room(full, one.snapshot())
        };
        let idle = state.open.values().filter(may_close);
        let Some(snapshot) = idle.min_by_key(|one| one.last_used()).map(|one| one.snapshot())
        else {
            return Err(Error::new(ErrorKind::ResourceExhausted, full.to_string()));
        };
        let closed = state.open.remove(&snapshot);
        state.shares.forget(snapshot);
        state.resolved.retain(|_, resolved| *resolved != snapshot);
        drop(state);
        drop(closed);
        self.cache.drop_manifest(snapshot);
        Ok(())
    }

    /// Returns the open dataset if the request names its snapshot, and its identity has read it
    /// before. The origin is not asked.
    fn pinned(&self, wanted: &WantedDataset) -> Option<Arc<Dataset>> {
        let dataset = self.get(wanted.dataset.tag().parse().ok()?)?;
        let variables = self.identities.get(wanted.identity)?;
        let may_read = dataset.origin().has_way_by(&variables);
        (may_read && dataset.uri() == wanted.dataset.uri()).then_some(dataset)
    }

    fn meant_before(&self, reference: &Reference) -> Option<Arc<Dataset>> {
        let snapshot = self.lock().resolved.get(reference).copied();
        snapshot.and_then(|snapshot| self.get(snapshot))
    }

    fn remember(&self, reference: Reference, snapshot: SnapshotId) {
        let mut state = self.lock();
        if state.resolved.len() >= REFERENCES_MAX {
            state.resolved.clear();
        }
        state.resolved.insert(reference, snapshot);
    }

    fn check_allowed(&self, uri: &OriginUri) -> Result<(), Error> {
        let prefixes = self.lock_prefixes();
        if prefixes.iter().any(|prefix| uri.starts_with(prefix)) {
            return Ok(());
        }
        let prefixes: Vec<_> = prefixes.iter().map(ToString::to_string).collect();
        let allowed = prefixes.join(", ");
        let what = format!("{uri} lies outside what this node may read ({allowed})");
        let hint = "start the node with --origin for that prefix, or ask another node";
        Err(Error::new(ErrorKind::PermissionDenied, what).with_hint(hint.to_owned()))
    }

    /// Checks the place of a manifest that a caller names. A manifest says which bytes are rows, so
    /// its author can make the node show every object under its prefix. So it must lie beside the
    /// data, or in a folder that the operator named.
    fn check_home(&self, prefix: &OriginUri, manifest: &OriginUri) -> Result<(), Error> {
        self.check_allowed(manifest)?;
        let home = home_of(manifest);
        let is_beside = home_beside(prefix).is_ok_and(|beside| beside == home);
        let is_private = self.fence.is_none();
        if is_private || is_beside || self.lock_prefixes().contains(&home) {
            return Ok(());
        }
        let what = format!("{home} is not beside {prefix}, and no --origin of this node");
        let hint = format!("start the node with --origin {home} too, or index without --manifest");
        Err(Error::new(ErrorKind::PermissionDenied, what).with_hint(hint))
    }

    fn lock_prefixes(&self) -> MutexGuard<'_, Vec<OriginUri>> {
        self.prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("prefixes", &self.prefixes).finish_non_exhaustive()
    }
}

/// Returns true if the dataset has no other holder and was not requested for long.
fn is_idle(dataset: &Arc<Dataset>, now: Instant) -> bool {
    let age = now.saturating_duration_since(dataset.last_used());
    Arc::strong_count(dataset) == 1 && age >= TICKET_IDLE_TIMEOUT
}

/// Maps an error of opening a dataset to the error that crosses the wire.
pub(crate) fn dataset_error(error: DatasetError) -> Error {
    let hint = error.hint();
    Error::new(ErrorKind::from(&error), error.to_string()).with_hint(hint).with_source(error)
}

/// Maps an error of reaching an origin to the error that crosses the wire.
fn origin_error(error: OriginError) -> Error {
    Error::new(ErrorKind::from(&error), error.to_string()).with_source(error)
}

fn silent(uri: &OriginUri, patience: Duration) -> Error {
    let seconds = patience.as_secs();
    Error::new(
        ErrorKind::OriginUnavailable,
        format!("{uri} did not answer for {seconds} s; ask again"),
    )
}

/// How many references are remembered: a few tags for each dataset that may be open.
const REFERENCES_MAX: usize = 4 * limits::OPEN_DATASETS_MAX;
