//! etcd's messages, and the few forms of them that are used here.

mod generated {
    #![allow(
        missing_docs,
        dead_code,
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes,
        unused_qualifications,
        unreachable_pub,
        reason = "made from the schema and compared with it byte for byte"
    )]

    include!("generated.rs");
}

use bytes::Bytes;

use super::keys::KeyRange;
use crate::types::CoordinatorError;
use generated::compare::{CompareResult, CompareTarget, TargetUnion};
use generated::request_op::Request;
use generated::response_op::Response;
use generated::{Compare, DeleteRangeRequest, PutRequest, RangeRequest};

pub(super) use generated::auth_client::AuthClient;
pub(super) use generated::event::EventType;
pub(super) use generated::kv_client::KvClient;
pub(super) use generated::lease_client::LeaseClient;
pub(super) use generated::watch_client::WatchClient;
pub(super) use generated::watch_request::RequestUnion;
pub(super) use generated::{
    AuthenticateRequest, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    RequestOp as Op, TxnRequest, TxnResponse, WatchCreateRequest, WatchProgressRequest,
    WatchRequest, WatchResponse,
};

/// Compares: the key was last changed at this revision; 0 means it is missing.
pub(super) fn is_at(key: Bytes, revision: i64) -> Compare {
    compare(key, CompareTarget::Mod, CompareResult::Equal, TargetUnion::ModRevision(revision))
}

/// Compares: the key exists.
pub(super) fn exists(key: Bytes) -> Compare {
    compare(key, CompareTarget::Version, CompareResult::Greater, TargetUnion::Version(0))
}

/// Compares: the key has this value.
pub(super) fn has_value(key: Bytes, value: Bytes) -> Compare {
    compare(key, CompareTarget::Value, CompareResult::Equal, TargetUnion::Value(value))
}

/// Compares: the key is on this lease.
pub(super) fn is_on(key: Bytes, lease: i64) -> Compare {
    compare(key, CompareTarget::Lease, CompareResult::Equal, TargetUnion::Lease(lease))
}

fn compare(key: Bytes, target: CompareTarget, result: CompareResult, with: TargetUnion) -> Compare {
    Compare { key, target: target.into(), result: result.into(), target_union: Some(with) }
}

/// Gets one key.
pub(super) fn get(key: Bytes) -> Op {
    Op { request: Some(Request::RequestRange(RangeRequest { key, ..RangeRequest::default() })) }
}

/// Gets all keys of a range, at most `limit`.
pub(super) fn get_all((key, range_end): KeyRange, limit: i64, keys_only: bool) -> Op {
    Op { request: Some(Request::RequestRange(RangeRequest { key, range_end, limit, keys_only })) }
}

/// Puts a key, on a lease unless that is 0.
pub(super) fn put(key: Bytes, value: Bytes, lease: i64) -> Op {
    Op { request: Some(Request::RequestPut(PutRequest { key, value, lease })) }
}

/// Deletes a key.
pub(super) fn delete(key: Bytes) -> Op {
    delete_all((key, Bytes::new()))
}

/// Deletes all keys of a range.
pub(super) fn delete_all((key, range_end): KeyRange) -> Op {
    Op { request: Some(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end })) }
}

/// Returns the revision of the store after a transaction.
pub(super) fn revision(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

/// Returns the keys that each `get` of a transaction found.
pub(super) fn all_ranges(answer: TxnResponse) -> Result<Vec<Vec<KeyValue>>, CoordinatorError> {
    let found = answer.responses.into_iter().map(|operation| match operation.response {
        Some(Response::ResponseRange(range)) if !range.more => Ok(range.kvs),
        Some(Response::ResponseRange(_)) => Err(super::nonsense("how much is kept")),
        _ => Err(super::nonsense("an answer")),
    });
    found.collect()
}

/// Returns the same for a known number of gets.
pub(super) fn ranges<const COUNT: usize>(
    answer: TxnResponse,
) -> Result<[Vec<KeyValue>; COUNT], CoordinatorError> {
    all_ranges(answer)?.try_into().map_err(|_| super::nonsense("the number of answers"))
}
