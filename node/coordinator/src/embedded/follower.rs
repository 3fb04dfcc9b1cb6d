//! Follows the serving coordinator: reconnects after each break, and keeps a whole copy of the
//! record, so that this node could take over.
//!
//! It looks for the coordinator at the last known place, then at the places given at the start. A
//! node that does not coordinate may name another place. A coordinator of an older generation is
//! ignored.
//!
//! Thread rule: one task listens, one copies; calls come from anywhere.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use larder_base::{BootId, Error, limits};
use larder_wire::control::{
    AnnounceRequest, ClusterView, LocateResponse, ReadClusterRequest, ReplaceRecordRequest,
    SweepBlobsRequest, WatchClusterRequest, WithdrawRequest, coordinator_client::CoordinatorClient,
    replace_record_response,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Streaming;
use tonic::transport::Channel;

use super::durable_state::DurableState;
use super::leader::sweep_all_but;
use crate::jittered;
use crate::message::{
    self, PersistedState, Promise, announcement_message, blob_field, blob_id, blob_ids, stored,
    stored_message,
};
use crate::peer::{Answered, CallFault, Caller, Effect, LeaderAddress};
use crate::token::JoinToken;
use crate::types::{
    self, Announcement, BlobId, CoordinatorError, CoordinatorView, RecordAtRevision, Replaced,
    Revision,
};
use crate::watch::Publisher;

type Client = CoordinatorClient<Channel>;

/// A follower. Its tasks end when it is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    connection: Arc<LeaderConnection>,
    end: DropGuard,
}

/// The state that the tasks and the calls share.
#[derive(Debug)]
struct LeaderConnection {
    durable: Arc<DurableState>,
    publisher: Arc<Publisher>,
    token: JoinToken,
    /// The places to ask first: `http://host:port`.
    places: Vec<String>,
    /// This node's own place, which it does not ask.
    own: String,
    current: ArcSwapOption<Caller>,
}

impl Follower {
    /// Begins to follow. Call it inside a runtime.
    pub(super) fn start(
        durable: &Arc<DurableState>,
        publisher: &Arc<Publisher>,
        token: &JoinToken,
        places: &[String],
        own: &str,
    ) -> Self {
        publisher.away("it has not been reached yet");
        let connection = Arc::new(LeaderConnection {
            durable: Arc::clone(durable),
            publisher: Arc::clone(publisher),
            token: token.clone(),
            places: places.to_vec(),
            own: own.to_owned(),
            current: ArcSwapOption::empty(),
        });
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(listen(Arc::clone(&connection))));
        tokio::spawn(end.clone().run_until_cancelled_owned(copy(Arc::clone(&connection))));
        Self { connection, end: end.drop_guard() }
    }

    /// Ends its tasks, though calls may still be running.
    pub(super) fn end(&self) {
        self.end.token().cancel();
    }

    /// Returns true if the coordinator was reachable at the last news.
    pub(super) fn reaches(&self) -> bool {
        self.connection.publisher.is_here()
    }

    pub(super) async fn read(&self) -> Result<CoordinatorView, CoordinatorError> {
        let send = async |mut client: Client, request| client.read_cluster(request).await;
        let view = self.connection.call(Effect::Reads, ReadClusterRequest {}, send).await?;
        message::view(view).map_err(CoordinatorError::Away)
    }

    pub(super) async fn replace(
        &self,
        expected: Option<Revision>,
        record: Bytes,
        blobs: Vec<BlobId>,
    ) -> Result<Replaced, CoordinatorError> {
        types::check_record(&record, &blobs)?;
        let request = ReplaceRecordRequest {
            expected: expected.map(|revision| revision.0),
            record,
            blobs: blobs.iter().map(blob_field).collect(),
        };
        let send = async |mut client: Client, request| client.replace_record(request).await;
        let answer = self.connection.call(Effect::Writes, request, send).await?;
        replaced(answer.outcome)
    }

    pub(super) async fn put_blob(&self, bytes: Bytes) -> Result<BlobId, CoordinatorError> {
        types::check_blob(bytes.len() as u64)?;
        let (caller, known) = self.connection.caller()?;
        self.connection.accept(&caller, caller.put_blob(known, &bytes).await).await
    }

    /// Prefers the local copy, because a blob never changes.
    pub(super) async fn blob(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError> {
        match self.connection.copy_of(id).await? {
            Some(bytes) => Ok(Some(bytes)),
            None => self.connection.fetch(id).await,
        }
    }

    pub(super) async fn sweep(&self, at: Revision) -> Result<Option<u64>, CoordinatorError> {
        let send = async |mut client: Client, request| client.sweep_blobs(request).await;
        let request = SweepBlobsRequest { revision: at.0 };
        Ok(self.connection.call(Effect::Writes, request, send).await?.swept)
    }

    pub(super) async fn announce(&self, node: Announcement) -> Result<(), CoordinatorError> {
        types::check_announcement(&node)?;
        let request = AnnounceRequest { announcement: Some(announcement_message(&node)) };
        let send = async |mut client: Client, request| client.announce(request).await;
        self.connection.call(Effect::Writes, request, send).await.map(drop)
    }

    pub(super) async fn withdraw(
        &self,
        node_id: &str,
        boot: BootId,
    ) -> Result<(), CoordinatorError> {
        let boot_id = Bytes::copy_from_slice(boot.as_bytes());
        let request = WithdrawRequest { node_id: node_id.to_owned(), boot_id };
        let send = async |mut client: Client, request| client.withdraw(request).await;
        self.connection.call(Effect::Writes, request, send).await.map(drop)
    }
}

/// Decodes the answer to a replace. An answer without an outcome leaves it unknown.
fn replaced(
    outcome: Option<replace_record_response::Outcome>,
) -> Result<Replaced, CoordinatorError> {
    use replace_record_response::Outcome;
    match outcome {
        Some(Outcome::Revision(revision)) => Ok(Replaced::Done(Revision(revision))),
        Some(Outcome::Moved(ClusterView { record, .. })) => {
            let present = record.map(stored).transpose().map_err(CoordinatorError::Away)?;
            Ok(Replaced::Moved(present))
        }
        Some(Outcome::Missing(names)) => {
            let names = names.chunks(16).map(blob_id).collect::<Result<_, _>>();
            Ok(Replaced::Missing(names.map_err(CoordinatorError::Away)?))
        }
        None => Err(CoordinatorError::unknown("it sent an answer that this version does not know")),
    }
}

impl LeaderConnection {
    /// Returns the connection to call, and the greatest known generation.
    fn caller(&self) -> Result<(Arc<Caller>, u32), CoordinatorError> {
        let current = self.current.load_full();
        let caller = current.ok_or_else(|| CoordinatorError::away("it is not reached now"))?;
        let kept = self.durable.kept();
        kept.promise().map_or(Ok(()), |promise| Err(bound(&promise)))?;
        Ok((caller, kept.generation))
    }

    async fn call<M, T, F>(
        &self,
        effect: Effect,
        message: M,
        send: impl FnOnce(Client, tonic::Request<M>) -> F,
    ) -> Result<T, CoordinatorError>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let (caller, known) = self.caller()?;
        let answered = caller.call(known, effect, message, send).await;
        self.accept(&caller, answered).await
    }

    /// Accepts an answer unless the coordinator's generation is over.
    async fn accept<T>(
        &self,
        caller: &Caller,
        answered: Answered<T>,
    ) -> Result<T, CoordinatorError> {
        match answered {
            Ok((answer, theirs)) => {
                check(&self.durable.kept(), caller.address(), theirs)?;
                Ok(answer)
            }
            Err(fault) => Err(self.learn(fault).await),
        }
    }

    /// Saves the place of the coordinator that a failed call named.
    async fn learn(&self, fault: CallFault) -> CoordinatorError {
        if let Some(place) = fault.elsewhere
            && let Err(why) = self.remember(place).await
        {
            return why;
        }
        fault.error
    }

    async fn remember(&self, place: LeaderAddress) -> Result<(), CoordinatorError> {
        let step = move |_: &DurableState, kept: &mut PersistedState| {
            let newer = place.generation > kept.generation;
            let more = place.generation == kept.generation && !place.coordinator.is_empty();
            // If this node has taken over meanwhile, it keeps its own state.
            if !kept.coordinates && (newer || more) {
                kept.generation = place.generation;
                kept.coordinator = place.coordinator;
            }
            Ok(())
        };
        self.durable.change(step, |_| ()).await
    }

    /// Returns the places to ask, in order.
    fn candidates(&self) -> Vec<String> {
        let last = self.durable.kept().coordinator.clone();
        let mut places = vec![last];
        places.extend(self.places.iter().cloned());
        places.retain(|place| !place.is_empty() && *place != self.own);
        let mut seen = Vec::new();
        places.retain(|place| {
            !seen.contains(place) && {
                seen.push(place.clone());
                true
            }
        });
        places
    }

    /// Listens to one place until that ends. Returns the reason, and whether any news came.
    async fn listen_to(&self, place: &str) -> (CoordinatorError, bool) {
        match self.open(place).await {
            Ok((caller, theirs, views)) => {
                self.current.store(Some(Arc::new(caller)));
                let ended = self.take_views(place, theirs, views).await;
                self.current.store(None);
                ended
            }
            Err(why) => (why, false),
        }
    }

    /// Opens a watch. Returns it with the coordinator's generation.
    async fn open(
        &self,
        place: &str,
    ) -> Result<(Caller, u32, Streaming<ClusterView>), CoordinatorError> {
        let caller = Caller::new(place, &self.token).map_err(CoordinatorError::Refused)?;
        let known = self.durable.kept().generation;
        let send = async |mut client: Client, request| client.watch_cluster(request).await;
        let answered = caller.call(known, Effect::Reads, WatchClusterRequest {}, send).await;
        let theirs = answered.as_ref().map_or(0, |(_, theirs)| *theirs);
        let views = self.accept(&caller, answered).await?;
        self.remember(LeaderAddress { generation: theirs, coordinator: place.to_owned() }).await?;
        Ok((caller, theirs, views))
    }

    async fn take_views(
        &self,
        place: &str,
        theirs: u32,
        mut views: Streaming<ClusterView>,
    ) -> (CoordinatorError, bool) {
        let mut view = CoordinatorView::default();
        let mut heard = false;
        loop {
            let next = tokio::time::timeout(limits::COORDINATOR_RETRY_MAX, views.message()).await;
            let taken = match next {
                Ok(next) => self.take_view(place, theirs, &mut view, next),
                // No news. Check for a promise made meanwhile.
                Err(_) => check(&self.durable.kept(), place, theirs).map(|()| heard),
            };
            match taken {
                Ok(now) => heard = now,
                Err(why) => return (why, heard),
            }
        }
    }

    /// Merges the next message of a watch, and publishes the result.
    fn take_view(
        &self,
        place: &str,
        theirs: u32,
        view: &mut CoordinatorView,
        next: Result<Option<ClusterView>, tonic::Status>,
    ) -> Result<bool, CoordinatorError> {
        let next = next.map_err(|status| crate::peer::outcome(place, &status, Effect::Reads))?;
        let ended = || CoordinatorError::away(format!("{place} ended the watch"));
        merge(view, next.ok_or_else(ended)?).map_err(CoordinatorError::Away)?;
        self.publish(place, theirs, view).map(|()| true)
    }

    /// Publishes a coordinator's state, unless its generation is over. The lock keeps a promise
    /// from coming in between: it would report an older state than this node has published.
    fn publish(
        &self,
        place: &str,
        theirs: u32,
        view: &CoordinatorView,
    ) -> Result<(), CoordinatorError> {
        let kept = self.durable.kept();
        check(&kept, place, theirs)?;
        self.publisher.here(view.clone());
        Ok(())
    }

    /// Asks the node that has this coordinator's promise. Frees the coordinator if that node has
    /// begun, or never will.
    async fn ask_promised(&self) -> Result<(), CoordinatorError> {
        let kept = self.durable.kept().clone();
        let Some(promise) = kept.promise().filter(|promise| promise.address != self.own) else {
            return Ok(());
        };
        let caller = Caller::new(&promise.address, &self.token);
        let caller = caller.map_err(CoordinatorError::Refused)?;
        let theirs = caller.locate(kept.generation).await.map_err(|fault| fault.error)?.0;
        if theirs.generation >= promise.generation {
            let LocateResponse { generation, coordinator, .. } = theirs;
            return self.remember(LeaderAddress { generation, coordinator }).await;
        }
        let still = (theirs.promised, &theirs.promised_to);
        if still == (promise.generation, &promise.node_id) {
            return Ok(());
        }
        let step = move |_: &DurableState, kept: &mut PersistedState| {
            kept.release(&promise);
            Ok(())
        };
        self.durable.change(step, |_| ()).await
    }

    /// Returns a blob from the local copy.
    async fn copy_of(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError> {
        let durable = Arc::clone(&self.durable);
        let read = tokio::task::spawn_blocking(move || durable.folder().blob(id)).await;
        let read = read.map_err(|why| CoordinatorError::away(why.to_string()))?;
        read.map_err(CoordinatorError::Refused)
    }

    async fn fetch(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError> {
        let (caller, known) = self.caller()?;
        let answered = caller.blob(known, id).await;
        self.accept(&caller, answered).await
    }

    /// Copies a record with all its blobs. Replaces the old copy once the new one is whole.
    async fn copy_record(&self, record: &RecordAtRevision) -> Result<(), CoordinatorError> {
        for id in &record.blobs {
            if self.copy_of(*id).await?.is_some() {
                continue;
            }
            let Some(bytes) = self.fetch(*id).await? else {
                return Err(CoordinatorError::away(format!(
                    "blob {id} is gone: a newer record came"
                )));
            };
            let id = *id;
            let keep = move |durable: &DurableState, _: &mut PersistedState| {
                durable.folder().put_blob(id, &bytes).map_err(|why| durable.not_saved(why))
            };
            self.durable.change(keep, |_| ()).await?;
        }
        let message = stored_message(record);
        let keep = move |_: &DurableState, kept: &mut PersistedState| {
            if kept.revision().is_none_or(|copied| copied.0 < message.revision) {
                kept.record = Some(message);
            }
            Ok(())
        };
        self.durable.change(keep, |_| ()).await?;
        // Not earlier: until now the older copy was the whole one.
        let sweep = |durable: &DurableState, kept: &mut PersistedState| {
            let needed = kept.record.as_ref().map_or(Ok(Vec::new()), |kept| blob_ids(&kept.blobs));
            sweep_all_but(durable, &needed.map_err(CoordinatorError::Refused)?)
        };
        self.durable.change(sweep, |_| ()).await.map(drop)
    }
}

/// Refuses a coordinator if its generation is over, or is superseded by a promise.
fn check(kept: &PersistedState, place: &str, theirs: u32) -> Result<(), CoordinatorError> {
    if theirs >= kept.least_generation() {
        return Ok(());
    }
    if let Some(promise) = kept.promise() {
        return Err(bound(&promise));
    }
    Err(CoordinatorError::away(format!(
        "{place} coordinated generation {theirs}, which is over: generation {} is known here",
        kept.generation
    )))
}

/// Returns the error of a coordinator that waits for a takeover.
fn bound(promise: &Promise) -> CoordinatorError {
    let Promise { generation, node_id, address } = promise;
    CoordinatorError::away(format!(
        "generation {generation} was promised to {node_id} at {address}, which takes over: if that is lost, order the \
         takeover on another node"
    ))
}

/// Replaces the parts of a view that a message contains.
fn merge(view: &mut CoordinatorView, next: ClusterView) -> Result<(), Error> {
    if let Some(record) = next.record {
        view.record = Some(stored(record)?);
    }
    if let Some(announcements) = next.announcements {
        view.alive = message::alive(announcements)?;
    }
    Ok(())
}

/// Listens for ever to the current coordinator.
async fn listen(connection: Arc<LeaderConnection>) {
    let mut wait = limits::COORDINATOR_RETRY_MIN;
    loop {
        let mut failures = Vec::new();
        if let Err(why) = connection.ask_promised().await {
            failures.push(why.to_string());
        }
        for place in connection.candidates() {
            let known = connection.durable.kept().clone();
            let (why, heard) = connection.listen_to(&place).await;
            if heard {
                wait = limits::COORDINATOR_RETRY_MIN;
            }
            connection.publisher.away(&why.to_string());
            failures.push(why.to_string());
            let now = connection.durable.kept().clone();
            if (now.generation, now.coordinator) != (known.generation, known.coordinator) {
                // A node named the coordinator's place: ask there first.
                break;
            }
        }
        match failures.as_slice() {
            [] => connection.publisher.away("no node is known to ask for it: name one with --join"),
            failures => connection.publisher.away(&failures.join("; ")),
        }
        tokio::time::sleep(jittered(wait)).await;
        wait = (wait * 2).min(limits::COORDINATOR_RETRY_MAX);
    }
}

/// Keeps a whole local copy of the newest record.
async fn copy(connection: Arc<LeaderConnection>) {
    let mut watch = connection.publisher.watch();
    loop {
        let view = watch.view();
        let copied = match &view.record {
            Some(record) if connection.publisher.is_here() => connection.copy_record(record).await,
            _ => Ok(()),
        };
        let more = match copied {
            Ok(()) => watch.changed().await,
            Err(why) => {
                tracing::debug!("the record was not copied: {why}");
                let again = tokio::time::sleep(limits::COORDINATOR_RETRY_MAX);
                tokio::select! {
                    more = watch.changed() => more,
                    () = again => true,
                }
            }
        };
        if !more {
            return;
        }
    }
}
