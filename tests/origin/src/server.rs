//! The server: a listener, a runtime on a thread of its own, and the handle that stops it.

mod connection;
mod service;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::REGION;
use crate::counts::Counts;
use crate::credentials::Credentials;
use crate::fault::FaultPlan;
use connection::{serve, serve_counts};
use service::Service;

/// Connections served at once; more wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 1024;

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The port on 127.0.0.1; 0 for any.
    pub port: u16,
    /// The port on 127.0.0.1 for `GET /_counts`, which returns the counts as JSON; `None` for no
    /// port.
    pub counts_port: Option<u16>,
    /// The delay before each answer, like that of a distant store.
    pub latency: Duration,
    /// Bytes a second of all answers with objects together, like a store behind a narrow line.
    /// `None`: as fast as it can.
    pub rate: Option<u64>,
}

/// A running S3 server. Stops when dropped.
#[derive(Debug)]
pub struct S3Server {
    directory: PathBuf,
    address: SocketAddr,
    counts_address: Option<SocketAddr>,
    service: Arc<Service>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl S3Server {
    /// Serves the buckets in `directory` (each a directory in it) on loopback.
    ///
    /// # Errors
    /// When the directory is not there or the port is taken.
    pub fn start(directory: impl AsRef<Path>, options: &Options) -> io::Result<Self> {
        let directory = directory.as_ref().canonicalize()?;
        let service = Arc::new(Service::new(&directory, options.latency, options.rate)?);
        let listener = listen(options.port)?;
        let counts_listener = options.counts_port.map(listen).transpose()?;
        let address = listener.local_addr()?;
        let counts_address = counts_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("larder-origin")
            .enable_all()
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let serving = Arc::clone(&service);
        let thread = std::thread::Builder::new()
            .name("larder-origin".to_owned())
            .spawn(move || run(runtime, listener, counts_listener, &serving, &stopped))?;
        Ok(Self { directory, address, counts_address, service, stop, thread: Some(thread) })
    }

    /// Returns the directory of the buckets.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes a bucket, if it does not exist, and returns its directory. Files in it are its
    /// objects.
    ///
    /// # Errors
    /// When the directory can't be made.
    pub fn create_bucket(&self, name: &str) -> io::Result<PathBuf> {
        let bucket = self.directory.join(name);
        std::fs::create_dir_all(&bucket)?;
        Ok(bucket)
    }

    /// Returns the address of its listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the URL of the counts, if the options have a port for them.
    #[must_use]
    pub fn counts_endpoint(&self) -> Option<String> {
        self.counts_address.map(|address| format!("http://{address}/_counts"))
    }

    /// Accepts only these credentials from now on.
    pub fn set_credentials(&self, credentials: Credentials) {
        self.accept(vec![credentials]);
    }

    /// Accepts only these credentials from now on: several, as those that were renewed stay valid
    /// for a time.
    ///
    /// # Panics
    /// If there are none.
    pub fn accept(&self, credentials: Vec<Credentials>) {
        self.service.credentials.set(credentials);
    }

    /// Returns the access key of the last request that was accepted.
    #[must_use]
    pub fn last_key(&self) -> Option<String> {
        self.service.credentials.last()
    }

    /// Returns the usual AWS variables that point a client at this server.
    #[must_use]
    pub fn env(&self) -> Vec<(String, String)> {
        let Credentials { access_key, secret_key, session_token } = self.service.credentials.get();
        let variables = [
            ("AWS_ACCESS_KEY_ID", access_key),
            ("AWS_SECRET_ACCESS_KEY", secret_key),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ];
        let token = session_token.map(|token| ("AWS_SESSION_TOKEN", token));
        variables.into_iter().chain(token).map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.service.counters.snapshot()
    }

    /// Resets the counts to zero.
    pub fn reset_counts(&self) {
        self.service.counters.reset();
    }

    /// Applies the faults of `plan` to later reads, in place of the plan before.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.service.set_plan(Some(plan));
    }

    /// Stops injecting faults. Answers that are already changed stay so.
    pub fn clear_faults(&self) {
        self.service.set_plan(None);
    }

    /// Stops. Afterwards the port refuses connections and the open ones have been reset.
    pub fn stop(mut self) {
        self.close();
    }

    fn close(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the server's thread has been printed already.
            let _ = thread.join();
        }
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.close();
    }
}

/// Binds without a runtime, so async code can start a server too.
fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves until told to stop. Then both listeners are closed and all connections are gone.
fn run(
    runtime: Runtime,
    listener: TcpListener,
    counts_listener: Option<TcpListener>,
    service: &Arc<Service>,
    stopped: &watch::Receiver<bool>,
) {
    let served = runtime.block_on(async {
        let counts = counts_listener.map(tokio::net::TcpListener::from_std).transpose()?;
        let counts = counts.map(|listener| {
            tokio::spawn(serve_counts(listener, Arc::clone(service), stopped.clone()))
        });
        accept(tokio::net::TcpListener::from_std(listener)?, service, stopped.clone()).await;
        if let Some(counts) = counts {
            // It ends by the same signal; a panic in it has been printed.
            let _ = counts.await;
        }
        io::Result::Ok(())
    });
    if let Err(error) = served {
        tracing::error!(%error, "the server could not use its listener");
    }
    // Only file work without a connection still runs now.
    runtime.shutdown_background();
}

async fn accept(
    listener: tokio::net::TcpListener,
    service: &Arc<Service>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let socket = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            Some(_) = connections.join_next(), if connections.len() >= CONNECTIONS_MAX => continue,
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
        };
        while connections.try_join_next().is_some() {}
        match socket {
            Ok((socket, _)) => {
                connections.spawn(serve(socket, Arc::clone(service), stopped.clone()));
            }
            // Out of descriptors, or a client that left the queue: the next one may succeed.
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}
