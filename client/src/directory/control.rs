//! The control calls of a client, each with its time limit, over one channel per node.
//!
//! A channel belongs to the process that made it, because the process's runtime drives its socket.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use larder_base::{ErrorKind, Placement, Ring, SnapshotId, Ticket, limits, placement::Exceptions};
use larder_dataset::{Leaf, Manifest, WritePolicy};
use larder_wire::{
    control as schema,
    control::{
        DescribeRequest, FetchManifestRequest, GetExceptionsRequest, GetRingRequest,
        NodeDescription, OpenDatasetRequest, admin_client::AdminClient, node_client::NodeClient,
    },
};
use tonic::{
    Request, Status,
    codegen::http::Uri,
    metadata::BinaryMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use super::{
    DatasetName, OpenDataset,
    answers::{OF_THIS_HOST, Pieces, within},
};
use crate::{Error, process::PerProcess, remote};

/// The keep-alive interval of a connection with a call on it. A lost node is noticed within two
/// seconds, even by long calls.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// The channels of this process, by control address.
pub(super) struct Control {
    channels: PerProcess<Mutex<HashMap<String, Channel>>>,
    pass: ArcSwap<Pass>,
    is_of_host: bool,
}

/// Adds a ticket to every call, for nodes that serve one user only.
#[derive(Clone)]
pub(super) struct Pass(Option<BinaryMetadataValue>);

impl Pass {
    fn showing(ticket: Ticket) -> Self {
        Self(Some(BinaryMetadataValue::from_bytes(ticket.as_bytes())))
    }
}

impl Interceptor for Pass {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(ticket) = &self.0 {
            request.metadata_mut().insert_bin(schema::TICKET_METADATA, ticket.clone());
        }
        Ok(request)
    }
}

/// Also adds the token of a cluster, which proves an operator.
#[derive(Clone)]
pub(super) struct Entitled {
    pass: Pass,
    token: Option<BinaryMetadataValue>,
}

impl Interceptor for Entitled {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let mut request = self.pass.call(request)?;
        if let Some(token) = &self.token {
            request.metadata_mut().insert_bin(schema::JOIN_TOKEN_METADATA, token.clone());
        }
        Ok(request)
    }
}

pub(super) type OperatorClient = AdminClient<InterceptedService<Channel, Entitled>>;

type Client = NodeClient<InterceptedService<Channel, Pass>>;

impl Control {
    /// For nodes that need no ticket.
    pub(super) fn new() -> Self {
        Self::with_pass(Pass(None), false)
    }

    /// For the private node of this host, which issued this ticket.
    pub(super) fn with_ticket(ticket: Ticket) -> Self {
        Self::with_pass(Pass::showing(ticket), true)
    }

    fn with_pass(pass: Pass, is_of_host: bool) -> Self {
        Self { channels: PerProcess::new(), pass: ArcSwap::from_pointee(pass), is_of_host }
    }

    /// Fetches the ring of a private node that replaced an earlier one. Forgets the earlier node's
    /// channels and ticket.
    pub(super) async fn meet(&self, address: &str, ticket: Ticket) -> Result<Ring, Error> {
        self.pass.store(Arc::new(Pass::showing(ticket)));
        let channels = self.channels.get(|_| Mutex::default());
        channels.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.ring(address).await
    }

    /// The name of a node in errors: its address, unless it is the private node of this host.
    pub(super) fn named<'a>(&self, address: &'a str) -> &'a str {
        if self.is_of_host { OF_THIS_HOST } else { address }
    }

    pub(super) async fn ring(&self, address: &str) -> Result<Ring, Error> {
        let mut client = self.client(address)?;
        let call = client.get_ring(GetRingRequest {});
        let ring = within(self.named(address), limits::OWNER_SILENT_TIMEOUT, call).await?;
        Ok(Ring::try_from(ring)?)
    }

    pub(super) async fn describe(&self, address: &str) -> Result<NodeDescription, Error> {
        let mut client = self.client(address)?;
        let call = client.describe(DescribeRequest {});
        within(self.named(address), limits::OWNER_SILENT_TIMEOUT, call).await
    }

    pub(super) async fn open_dataset(
        &self,
        address: &str,
        name: &DatasetName,
        identity: u32,
    ) -> Result<OpenDataset, Error> {
        let request = OpenDatasetRequest {
            uri: name.reference.to_string(),
            manifest_uri: name.manifest.as_ref().map(ToString::to_string).unwrap_or_default(),
            client_name: remote::client_name(),
            identity,
            write_never: name.write == WritePolicy::Never,
        };
        let mut client = self.client(address)?;
        let call = client.open_dataset(request);
        let open = within(self.named(address), limits::OPEN_DATASET_TIMEOUT, call).await?;
        Ok(OpenDataset {
            snapshot: schema::snapshot_id(&open.snapshot)?,
            samples: open.samples,
            shards: open.shards,
            bytes: open.bytes,
            manifest_bytes: open.manifest_bytes,
            indexed_now: open.indexed_now,
            manifest_uri: open.manifest_uri,
            left_out: open.left_out,
            left_out_count: open.left_out_count,
            ticket: schema::ticket(&open.ticket)?,
        })
    }

    /// Fetches a manifest in pieces. Its hash exposes a node that sends another manifest than
    /// announced.
    pub(super) async fn manifest(
        &self,
        address: &str,
        open: &OpenDataset,
    ) -> Result<Manifest, Error> {
        let snapshot = Bytes::copy_from_slice(open.snapshot.as_bytes());
        let mut client = self.client(address)?;
        let call = client.fetch_manifest(FetchManifestRequest { snapshot, leaf: None });
        let pieces = within(self.named(address), limits::CONTROL_CALL_TIMEOUT, call).await?;
        let max = open.manifest_bytes.min(limits::MANIFEST_BYTES_MAX);
        let mut pieces = Pieces::new(self.named(address), pieces);
        let first = pieces.next().await?;
        let bytes = pieces.collect(first, max).await?;
        let manifest = Manifest::parse(bytes)
            .map_err(|error| not_that(address, open.snapshot).with_source(error))?;
        if manifest.snapshot() != open.snapshot {
            return Err(not_that(address, open.snapshot)
                .because(format!("it is that of snapshot {}", manifest.snapshot())));
        }
        Ok(manifest)
    }

    /// Fetches a leaf of a manifest in pieces. Its hash exposes a node that sends another one.
    pub(super) async fn leaf(
        &self,
        address: &str,
        manifest: &Manifest,
        leaf: u32,
    ) -> Result<Leaf, Error> {
        let snapshot = Bytes::copy_from_slice(manifest.snapshot().as_bytes());
        let mut client = self.client(address)?;
        let call = client.fetch_manifest(FetchManifestRequest { snapshot, leaf: Some(leaf) });
        let pieces = within(self.named(address), limits::OPEN_DATASET_TIMEOUT, call).await?;
        let mut pieces = Pieces::new(self.named(address), pieces);
        let first = pieces.next().await?;
        let bytes = pieces.collect(first, manifest.leaf_bytes(leaf)).await?;
        Leaf::over(manifest, leaf, Arc::new(bytes))
            .map_err(|error| not_that(address, manifest.snapshot()).with_source(error))
    }

    /// Fetches the placement of a snapshot with `shards` shards on a ring: the ring, with the
    /// exceptions from the node at `address`.
    ///
    /// # Errors
    /// - `NotFound` if the node uses another version of the ring.
    /// - `VersionMismatch` if the node runs an earlier version of the program.
    /// - `DataLoss` if the exceptions do not fit this ring.
    /// - Otherwise as any call.
    pub(super) async fn placement(
        &self,
        address: &str,
        ring: &Arc<Ring>,
        snapshot: SnapshotId,
        shards: u32,
    ) -> Result<Placement, Error> {
        let request = GetExceptionsRequest {
            snapshot: Bytes::copy_from_slice(snapshot.as_bytes()),
            ring_version: ring.version(),
        };
        let mut client = self.client(address)?;
        let call = client.get_exceptions(request);
        let pieces = within(self.named(address), limits::OWNER_SILENT_TIMEOUT, call).await?;
        let mut pieces = Pieces::new(self.named(address), pieces);
        let Some(first) = pieces.next().await? else {
            return Ok(Placement::of_ring(Arc::clone(ring)));
        };
        let unfit = || {
            let what = format!("node {address} sends exceptions that can't be used");
            Error::new(ErrorKind::DataLoss, what)
        };
        let (announced, max) = (first.table_bytes, Exceptions::bytes_max(shards));
        if announced > max {
            return Err(unfit().because(format!(
                "it announces {announced} bytes, and {shards} shards have {max} at most"
            )));
        }
        let table = pieces.collect(Some(first), announced).await?;
        let table = Exceptions::parse(table).map_err(|error| unfit().with_source(error))?;
        if table.snapshot() != snapshot {
            return Err(unfit().because(format!("they are of snapshot {}", table.snapshot())));
        }
        let placement = Placement::new(Arc::clone(ring), table);
        placement.map_err(|error| unfit().with_source(error))
    }

    pub(super) fn client(&self, address: &str) -> Result<Client, Error> {
        let pass = Pass::clone(&self.pass.load());
        let client = NodeClient::with_interceptor(self.channel(address)?, pass);
        Ok(client.max_decoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX))
    }

    pub(super) fn operator(
        &self,
        address: &str,
        token: Option<BinaryMetadataValue>,
    ) -> Result<OperatorClient, Error> {
        let shown = Entitled { pass: Pass::clone(&self.pass.load()), token };
        let client = AdminClient::with_interceptor(self.channel(address)?, shown);
        Ok(client.max_decoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX))
    }

    fn channel(&self, address: &str) -> Result<Channel, Error> {
        let channels = self.channels.get(|_| Mutex::default());
        let mut channels = channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let channel = channel(address)?;
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// Connects at the first call, and again after the connection breaks.
fn channel(address: &str) -> Result<Channel, Error> {
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|error| {
        Error::new(ErrorKind::InvalidArgument, format!("{address} is not an address"))
            .with_source(error)
    })?;
    let endpoint = endpoint
        .connect_timeout(limits::CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_INTERVAL);
    Ok(endpoint.connect_lazy())
}

fn not_that(address: &str, snapshot: SnapshotId) -> Error {
    let what = format!("node {address} sent what is not the manifest of snapshot {snapshot}");
    Error::new(ErrorKind::DataLoss, what)
}

pub(super) fn is_address(text: &str) -> bool {
    text.parse::<Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("http")
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.port_u16().is_some()
            && uri.path() == "/"
    })
}
