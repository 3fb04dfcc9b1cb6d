//! Follows changes in etcd: reads everything, then takes the changes after that. Starts again when
//! the stream ends.
//!
//! etcd sends nothing while nothing changes, so it is asked for its progress. It is away if it does
//! not answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use larder_base::limits;
use tokio::sync::mpsc;
use tonic::metadata::MetadataValue;
use tonic::{Status, Streaming};

use super::connection::pass_is_void;
use super::wire::{
    EventType, KeyValue, RequestUnion, WatchClient, WatchCreateRequest, WatchProgressRequest,
    WatchRequest, WatchResponse,
};
use super::{Store, announce, decode_record};
use crate::jittered;
use crate::peer::{Effect, outcome};
use crate::types::{CoordinatorError, CoordinatorView};
use crate::watch::Publisher;

/// How often etcd is asked for its progress.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Unanswered questions before etcd counts as away.
const UNANSWERED_MAX: u32 = 3;

/// Requests that wait to be sent: the first, and one question.
const REQUESTS_MAX: usize = 2;

/// Metadata that makes a member without a leader refuse to serve.
const HAS_LEADER: &str = "hasleader";

/// Follows for ever.
pub(super) async fn follow(store: Arc<Store>, publisher: Arc<Publisher>) {
    let mut wait = limits::COORDINATOR_RETRY_MIN;
    loop {
        let before = publisher.is_here();
        let why = follow_once(&store, &publisher).await;
        if publisher.is_here() && !before {
            wait = limits::COORDINATOR_RETRY_MIN;
        }
        if let Some(why) = why {
            publisher.away(&why.to_string());
            tokio::time::sleep(jittered(wait)).await;
            wait = (wait * 2).min(limits::COORDINATOR_RETRY_MAX);
        }
    }
}

/// Follows until the stream ends. Returns `None` if it only has to start again.
async fn follow_once(store: &Store, publisher: &Publisher) -> Option<CoordinatorError> {
    let (mut view, revision) = match store.read().await {
        Ok(read) => read,
        Err(why) => return Some(why),
    };
    publisher.here(view.clone());
    let (ask, mut answers) = match watch_after(store, revision).await {
        Ok(opened) => opened,
        Err(why) => return Some(why),
    };
    let mut unanswered = 0;
    loop {
        match tokio::time::timeout(ASK_INTERVAL, answers.message()).await {
            Ok(Ok(Some(answer))) if answer.canceled => return cancelled(store, &answer),
            Ok(Ok(Some(answer))) => {
                unanswered = 0;
                if let Err(why) = apply(store, &mut view, &answer) {
                    return Some(why);
                }
                publisher.here(view.clone());
            }
            Ok(Ok(None)) => return Some(CoordinatorError::away("etcd ended the watch")),
            Ok(Err(status)) => return Some(failed(store, &status)),
            Err(_) if unanswered < UNANSWERED_MAX => {
                unanswered += 1;
                let question = RequestUnion::ProgressRequest(WatchProgressRequest {});
                // Full: the previous question has not even been sent.
                let _ = ask.try_send(WatchRequest { request_union: Some(question) });
            }
            Err(_) => return Some(failed(store, &Status::deadline_exceeded("no sign of life"))),
        }
    }
}

/// Handles a cancelled watch. After a compaction the state is only read again. Otherwise etcd
/// refuses.
fn cancelled(store: &Store, answer: &WatchResponse) -> Option<CoordinatorError> {
    if answer.compact_revision > 0 {
        return None;
    }
    store.line.forget_pass();
    let why = format!("etcd ended the watch: {}", answer.cancel_reason);
    Some(CoordinatorError::away(why))
}

type Opened = (mpsc::Sender<WatchRequest>, Streaming<WatchResponse>);

/// Opens the stream of all changes after a revision of the store.
async fn watch_after(store: &Store, revision: i64) -> Result<Opened, CoordinatorError> {
    let (key, range_end) = store.keys.state();
    let start_revision = revision + 1;
    let create = WatchCreateRequest { key, range_end, start_revision, progress_notify: true };
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let (ask, questions) = mpsc::channel(REQUESTS_MAX);
    // There is room: nothing was sent yet.
    let _ = ask.try_send(create);
    let requests = stream::unfold(questions, async |mut questions: mpsc::Receiver<_>| {
        questions.recv().await.map(|question| (question, questions))
    });
    let open = async {
        let (_, channel) = store.line.endpoint();
        let mut request = store.line.request(channel.clone(), requests).await?;
        // A member cut off from the others then ends the watch. It would otherwise answer without
        // any change.
        request.metadata_mut().insert(HAS_LEADER, MetadataValue::from_static("true"));
        WatchClient::new(channel.clone())
            .max_decoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX)
            .watch(request)
            .await
    };
    let opened = tokio::time::timeout(limits::COORDINATOR_CALL_TIMEOUT, open).await;
    let opened = opened.unwrap_or_else(|_| Err(Status::deadline_exceeded("no watch in time")));
    let answers = opened.map_err(|status| failed(store, &status))?.into_inner();
    Ok((ask, answers))
}

/// Makes the next try use another endpoint, or a new auth token if the old one was void.
fn failed(store: &Store, status: &Status) -> CoordinatorError {
    let (address, _) = store.line.endpoint();
    if pass_is_void(status) {
        store.line.forget_pass();
    } else {
        store.line.turn_from(address);
    }
    outcome(address, status, Effect::Reads)
}

fn apply(
    store: &Store,
    view: &mut CoordinatorView,
    answer: &WatchResponse,
) -> Result<(), CoordinatorError> {
    if answer.events.is_empty() {
        return Ok(());
    }
    for event in &answer.events {
        let Some(entry) = &event.kv else { continue };
        let gone = event.r#type() == EventType::Delete;
        apply_one(store, view, entry, gone)?;
    }
    if let Some(header) = &answer.header {
        view.alive.stamp = u64::try_from(header.revision).unwrap_or(view.alive.stamp);
    }
    Ok(())
}

fn apply_one(
    store: &Store,
    view: &mut CoordinatorView,
    entry: &KeyValue,
    gone: bool,
) -> Result<(), CoordinatorError> {
    if entry.key == store.keys.record() {
        view.record = if gone { None } else { Some(decode_record(entry.clone())?) };
    } else if let Some(node_id) = store.keys.node_of(&entry.key) {
        match gone {
            true => drop(view.alive.nodes.remove(&node_id)),
            false => drop(view.alive.nodes.insert(node_id, announce::decode(entry)?)),
        }
    }
    Ok(())
}
