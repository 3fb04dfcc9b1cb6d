//! Calls to etcd: its endpoints in turn, its auth token, and the meaning of failures.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use larder_base::{Error, ErrorKind, limits};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};

use super::wire::{AuthClient, AuthenticateRequest, KvClient, TxnRequest, TxnResponse};
use super::{EtcdOptions, EtcdTls, Password};
use crate::peer::{Effect, outcome};
use crate::types::CoordinatorError;

/// How often a silent connection is probed, and how long the probe's answer may take.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Most endpoints: clusters of etcd have three or five.
const ENDPOINTS_MAX: usize = 16;

/// The connection to etcd.
#[derive(Debug)]
pub(super) struct EtcdConnection {
    endpoints: Vec<(String, Channel)>,
    /// The endpoint that answered last, or that is tried next.
    current: AtomicUsize,
    user: Option<(String, Password)>,
    /// The auth token that etcd issued for name and password.
    pass: ArcSwapOption<MetadataValue<Ascii>>,
}

impl EtcdConnection {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, Error> {
        if options.endpoints.is_empty() || options.endpoints.len() > ENDPOINTS_MAX {
            let count = options.endpoints.len();
            let why = format!("--etcd: {count} endpoints; name 1 to {ENDPOINTS_MAX}");
            return Err(Error::new(ErrorKind::InvalidArgument, why));
        }
        let endpoints = options
            .endpoints
            .iter()
            .map(|address| Ok((address.clone(), channel(address, options.tls.as_ref())?)));
        Ok(Self {
            endpoints: endpoints.collect::<Result<_, Error>>()?,
            current: AtomicUsize::new(0),
            user: options.user.clone(),
            pass: ArcSwapOption::empty(),
        })
    }

    /// Runs a transaction that changes nothing.
    pub(super) async fn read(&self, request: TxnRequest) -> Result<TxnResponse, CoordinatorError> {
        self.transact(Effect::Reads, request).await
    }

    /// Runs a transaction that may change something.
    pub(super) async fn write(&self, request: TxnRequest) -> Result<TxnResponse, CoordinatorError> {
        self.transact(Effect::Writes, request).await
    }

    async fn transact(
        &self,
        effect: Effect,
        request: TxnRequest,
    ) -> Result<TxnResponse, CoordinatorError> {
        let send = |channel, request| async move {
            KvClient::new(channel)
                .max_decoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX)
                .txn(request)
                .await
        };
        self.call(effect, request, send).await
    }

    /// Makes one call. Tries the next endpoint only if the request was not even sent. Renews a
    /// refused auth token once.
    pub(super) async fn call<M, T, F>(
        &self,
        effect: Effect,
        message: M,
        send: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<T, CoordinatorError>
    where
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (mut renewed, mut tries) = (false, 0);
        loop {
            tries += 1;
            let (address, channel) = self.endpoint();
            let sent = async {
                let request = self.request(channel.clone(), message.clone()).await?;
                send(channel.clone(), request).await
            };
            let answered = tokio::time::timeout(limits::COORDINATOR_CALL_TIMEOUT, sent).await;
            let status = match answered {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("no answer in time"),
            };
            if pass_is_void(&status) && self.user.is_some() && !renewed {
                renewed = true;
                self.pass.store(None);
                continue;
            }
            let why = outcome(address, &status, effect);
            let away = matches!(why, CoordinatorError::Away(_));
            if !matches!(why, CoordinatorError::Refused(_)) {
                self.turn_from(address);
            }
            if !away || tries >= self.endpoints.len() {
                return Err(why);
            }
        }
    }

    /// Adds etcd's auth token to a message.
    pub(super) async fn request<M>(
        &self,
        channel: Channel,
        message: M,
    ) -> Result<Request<M>, Status> {
        let mut request = Request::new(message);
        let Some((name, Password(password))) = &self.user else { return Ok(request) };
        let pass = match self.pass.load_full() {
            Some(pass) => pass,
            None => {
                let login = AuthenticateRequest { name: name.clone(), password: password.clone() };
                let answer = AuthClient::new(channel).authenticate(login).await?.into_inner();
                let pass = answer.token.parse();
                let pass = pass.map_err(|_| Status::internal("etcd gave a token that is none"))?;
                let pass = std::sync::Arc::new(pass);
                self.pass.store(Some(std::sync::Arc::clone(&pass)));
                pass
            }
        };
        request.metadata_mut().insert("token", MetadataValue::clone(&pass));
        Ok(request)
    }

    /// Makes the next call ask for a new auth token.
    pub(super) fn forget_pass(&self) {
        self.pass.store(None);
    }

    /// Returns the endpoint to use now.
    pub(super) fn endpoint(&self) -> (&str, &Channel) {
        let current = self.current.load(Ordering::Relaxed) % self.endpoints.len();
        let (address, channel) = &self.endpoints[current];
        (address, channel)
    }

    /// Switches to the next endpoint, unless another caller has switched already.
    pub(super) fn turn_from(&self, address: &str) {
        let current = self.current.load(Ordering::Relaxed);
        if self.endpoints[current % self.endpoints.len()].0 == address {
            // If another caller switches at the same time, nothing is lost.
            let next = (current + 1) % self.endpoints.len();
            let _ =
                self.current.compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Returns true if etcd wants a new auth token. A restart forgets its simple tokens. A JWT is void
/// after a change of users or roles.
pub(super) fn pass_is_void(status: &Status) -> bool {
    let says = |words| status.message().contains(words);
    match status.code() {
        Code::Unauthenticated => true,
        Code::InvalidArgument => {
            says("revision of auth store is old") || says("invalid auth token")
        }
        _ => false,
    }
}

/// Creates a channel that connects at the first call, and again after a break.
fn channel(address: &str, tls: Option<&EtcdTls>) -> Result<Channel, Error> {
    let wrong =
        |why: String| Error::new(ErrorKind::InvalidArgument, format!("--etcd {address}: {why}"));
    let mut endpoint =
        Endpoint::from_shared(address.to_owned()).map_err(|why| wrong(why.to_string()))?;
    match (endpoint.uri().scheme_str(), tls) {
        (Some("http"), None) => {}
        (Some("https"), Some(tls)) => {
            let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
            if let Some((certificate, key)) = &tls.identity {
                config = config.identity(Identity::from_pem(certificate, key));
            }
            let config = endpoint.tls_config(config);
            endpoint = config.map_err(|why| wrong(larder_base::root_cause(&why).to_string()))?;
        }
        (Some("https"), None) => {
            return Err(wrong(
                "https needs the authority's certificate: --etcd-ca FILE".to_owned(),
            ));
        }
        (Some("http"), Some(_)) => {
            return Err(wrong("certificates are for https: write https://host:port".to_owned()));
        }
        _ => return Err(wrong("write http://host:port or https://host:port".to_owned())),
    }
    Ok(endpoint
        .connect_timeout(limits::CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_INTERVAL)
        .connect_lazy())
}
