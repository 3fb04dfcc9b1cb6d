//! The connection to a store: looks at each answer before the library takes it.
//!
//! The library trusts a status of 200, and reads any document as a listing. Here a page of a
//! listing counts only if it is one (`listing`). The answers of services that give out credentials
//! keep their names, so that no user takes them for the store's. The library then retries what may
//! pass: it takes [`HttpErrorKind::Interrupted`] as a sign to do so.
//!
//! Thread rule: cheap to clone and to share; needs tokio's I/O and time.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_base::{WaitNotice, root_cause};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService, ReqwestConnector,
    },
};
use tokio::time::{Instant, timeout};

use super::{
    listing::{self, Fault},
    messages::{self, Explained, Transport},
};

/// Largest page of a listing: 1,000 keys take 1.5 MB at most, and some stores send more keys.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// How long a store that never answered is asked again. Its address may be wrong, and the user
/// should learn that soon.
const FIRST_CONTACT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long trouble with a store counts as the reason of a wait. The tries of a request are no
/// further apart.
const TROUBLE_LASTS: Duration = Duration::from_secs(10);

/// How often a request without an answer is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Pages that are no listing, one after another, before the listing fails. Such an answer comes
/// from a proxy or a faulty server, and most stay as they are.
const BAD_PAGES_MAX: u32 = 5;

/// Pages without a key, one after another, before the listing fails. A store may send some.
const BARE_PAGES_MAX: u32 = 1_000;

/// A service that gives out credentials: where it is, and its name for users.
#[derive(Debug, Clone)]
pub(super) struct TokenService {
    /// Host and port, as an address has them.
    pub(super) authority: String,
    pub(super) name: &'static str,
}

/// Connects to a store.
#[derive(Debug, Clone)]
pub(super) struct CheckedConnector {
    services: Arc<[TokenService]>,
    contact: Arc<Contact>,
}

/// What is known of a store from its answers.
#[derive(Debug, Default)]
pub(super) struct Contact {
    answered: OnceLock<()>,
    first_try: OnceLock<Instant>,
    /// Since when no request got a right answer.
    trouble_since: Mutex<Option<Instant>>,
    /// The latest trouble, and when it was noted.
    trouble: Mutex<Option<(Instant, String)>>,
    notice: WaitNotice,
    bad_pages: AtomicU32,
    bare_pages: AtomicU32,
}

impl CheckedConnector {
    pub(super) fn new(services: Vec<TokenService>, contact: &Arc<Contact>) -> Self {
        Self { services: services.into(), contact: Arc::clone(contact) }
    }
}

impl HttpConnector for CheckedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Connection { client, connector: self.clone() }))
    }
}

#[derive(Debug)]
struct Connection {
    client: HttpClient,
    connector: CheckedConnector,
}

impl HttpService for Connection {
    fn call<'service, 'call>(
        &'service self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'call>>
    where
        'service: 'call,
    {
        Box::pin(async move {
            let authority = request.uri().authority().map_or("", |authority| authority.as_str());
            let services = &self.connector.services;
            if let Some(service) = services.iter().find(|one| one.authority == authority) {
                return ask_service(&self.client, service.name, request).await;
            }
            let (contact, store) = (&self.connector.contact, authority.to_owned());
            let asked = listing::Asked::by(&request);
            let answer = contact.watched(&store, self.client.execute(request)).await;
            let response = contact.note(&store, answer)?;
            let Some(asked) = asked else { return Ok(response) };
            if !response.status().is_success() {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let page = whole(body).await?;
            contact.note_page(asked.check(&page))?;
            let page = asked.marked(&page).map_or(page, Bytes::from);
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(page)))
        })
    }
}

/// The remedy if a service gives no credentials.
const REFUSED_REMEDY: &str = "check the role, and that it trusts this machine or pod";

/// Asks a service that gives out credentials.
pub(super) async fn ask_service(
    client: &HttpClient,
    service: &'static str,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    // The library falls back to an older protocol at the answer to this one.
    let falls_back = request.method() == "PUT";
    let failed = |kind, why: String, remedy: Option<&str>| {
        let (why, remedy) = (format!("{service} {why}"), remedy.map(str::to_owned));
        Err(HttpError::new(kind, Explained { why, remedy }))
    };
    let response = match client.execute(request).await {
        Ok(response) => response,
        Err(error) => {
            let kind = error.kind();
            return failed(kind, format!("can't be reached: {}", root_cause(&error)), None);
        }
    };
    let status = response.status();
    if status.is_success() || (falls_back && status == 403) {
        return Ok(response);
    }
    let body = whole(response.into_body()).await.unwrap_or_default();
    let why = messages::answered("answered", &status.to_string(), &String::from_utf8_lossy(&body));
    match status.is_client_error() && status != 429 && status != 408 {
        true => failed(HttpErrorKind::Unknown, why, Some(REFUSED_REMEDY)),
        false => failed(HttpErrorKind::Interrupted, why, None),
    }
}

impl Contact {
    /// Waits for an answer of a store. Tells users if that takes long.
    async fn watched<T>(&self, store: &str, answer: impl Future<Output = T>) -> T {
        let (begun, mut answer) = (Instant::now(), pin!(answer));
        loop {
            match timeout(LOOK_INTERVAL, &mut answer).await {
                Ok(answer) => return answer,
                Err(_) => self.tell(store, begun, "it has not answered a request"),
            }
        }
    }

    /// Returns why requests wait now, if the store is in trouble.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = trouble.as_ref().filter(|(noted, _)| noted.elapsed() < TROUBLE_LASTS);
        lately.map(|(_, why)| why.clone())
    }

    /// Notes trouble with a store since `begun`. Tells users of it, if that is due.
    fn tell(&self, store: &str, begun: Instant, why: &str) {
        let (now, created) = (Instant::now(), *self.first_try.get_or_init(Instant::now));
        let waited = now.duration_since(begun);
        let trouble = (now, format!("{store} gives no right answer: {why}"));
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
        if self.notice.is_due(waited, now.duration_since(created)) {
            let seconds = waited.as_secs();
            tracing::warn!("{store} gives no right answer for {seconds} s: {why}; larder asks on");
        }
    }

    /// Notes whether a store is well, and tells users if it was not for long.
    fn note_trouble(&self, store: &str, why: Option<String>) {
        let mut since = self.trouble_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = why.is_some().then(|| since.unwrap_or_else(Instant::now));
        if let (Some(begun), Some(why)) = (*since, why) {
            drop(since);
            self.tell(store, begun, &why);
        } else {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Notes whether the store answered. An error of the transport may be retried, unless the store
    /// never answered in [`FIRST_CONTACT_TIMEOUT`], or shows a certificate that is not trusted.
    fn note(
        &self,
        store: &str,
        outcome: Result<HttpResponse, HttpError>,
    ) -> Result<HttpResponse, HttpError> {
        let error = match outcome {
            Ok(response) => {
                let _ = self.answered.set(());
                let status = response.status();
                let is_trouble = status.is_server_error() || status == 429;
                self.note_trouble(store, is_trouble.then(|| format!("it answers {status}")));
                return Ok(response);
            }
            Err(error) => error,
        };
        let now = Instant::now();
        let _ = self.first_try.set(now);
        let begun = self.first_try.get().copied().unwrap_or(now);
        let is_lost = self.answered.get().is_none()
            && error.kind() == HttpErrorKind::Connect
            && now.duration_since(begun) >= FIRST_CONTACT_TIMEOUT;
        let is_lost = is_lost || messages::is_untrusted(&root_cause(&error));
        if !is_lost {
            self.note_trouble(store, Some(root_cause(&error)));
        }
        let kind = match error.kind() {
            _ if is_lost => HttpErrorKind::Unknown,
            HttpErrorKind::Unknown => HttpErrorKind::Interrupted,
            kind => kind,
        };
        Err(HttpError::new(kind, Transport(error)))
    }

    /// Decides whether a page is taken, and whether one that is no listing is asked for again.
    fn note_page(&self, checked: Result<bool, Fault>) -> Result<(), HttpError> {
        let fault = match checked {
            Ok(has_keys) => {
                self.bad_pages.store(0, Ordering::Relaxed);
                if has_keys {
                    self.bare_pages.store(0, Ordering::Relaxed);
                    return Ok(());
                }
                if self.bare_pages.fetch_add(1, Ordering::Relaxed) < BARE_PAGES_MAX {
                    return Ok(());
                }
                listing::NO_KEYS
            }
            Err(fault) => fault,
        };
        let seen = self.bad_pages.fetch_add(1, Ordering::Relaxed) + 1;
        let kind = if fault.may_pass() && seen < BAD_PAGES_MAX {
            HttpErrorKind::Interrupted
        } else {
            // The next listing has all its tries again.
            self.bad_pages.store(0, Ordering::Relaxed);
            self.bare_pages.store(0, Ordering::Relaxed);
            HttpErrorKind::Unknown
        };
        Err(HttpError::new(kind, Explained::failure(fault.to_string())))
    }
}

/// Reads a body, which the library would read whole as well.
pub(super) async fn whole(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let mut page = Vec::new();
    let mut stream = body.bytes_stream();
    let broken = |error| HttpError::new(HttpErrorKind::Interrupted, Transport(error));
    while let Some(piece) = stream.try_next().await.map_err(broken)? {
        if page.len() + piece.len() > PAGE_BYTES_MAX {
            let why = format!("a page of the listing has more than {PAGE_BYTES_MAX} bytes");
            return Err(HttpError::new(HttpErrorKind::Decode, std::io::Error::other(why)));
        }
        page.extend_from_slice(&piece);
    }
    Ok(page.into())
}
