//! Turns a store's errors into short messages for users.
//!
//! The library wraps an answer in layers of its own text, with methods, durations, retry settings
//! and whole XML documents. The useful parts are the status, the store's own code and message, and
//! for a failed connection its address and the reason.

use std::{error::Error, fmt, io, iter};

use nix::errno::Errno;
use object_store::client::{HttpError, HttpErrorKind};

use larder_base::root_cause;

/// Characters kept of a store's own text: servers send whole pages.
const MESSAGE_CHARS: usize = 300;

/// The variables by which the library finds proxies.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// Codes by which S3 refuses a session token.
const TOKEN_CODES: [&str; 3] = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"];

/// An error whose text is for users as it is.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub(super) struct Explained {
    pub(super) why: String,
    /// The remedy, if credentials are refused. Otherwise another try may succeed.
    pub(super) remedy: Option<String>,
}

impl Explained {
    pub(super) fn refusal(why: String, remedy: String) -> Self {
        Self { why, remedy: Some(remedy) }
    }

    pub(super) fn failure(why: String) -> Self {
        Self { why, remedy: None }
    }
}

/// An error of the transport, before it was decided whether a retry may help.
#[derive(Debug)]
pub(super) struct Transport(pub(super) HttpError);

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Transport {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Returns why a request failed: one clause, lower case.
pub(super) fn plain(error: &object_store::Error) -> String {
    if let Some(explained) = cause::<Explained>(error) {
        return explained.to_string();
    }
    let text = full_text(error);
    if let Some((status, body)) = answer(&text) {
        return answered("the store answered", status, body);
    }
    if let Some((_, body)) = text.split_once("Server returned error response: ") {
        return answered("the store answered", "an error document", body);
    }
    if text.contains("redirect without LOCATION") {
        return "the store is elsewhere and does not say where: check AWS_REGION and AWS_ENDPOINT_URL"
            .to_owned();
    }
    let root = root_cause(error);
    match transport(error) {
        Some(HttpErrorKind::Connect) if is_untrusted(&root) => format!(
            "this host does not trust the issuer of the certificate of {}{}: name the file with the \
             issuer's certificate in SSL_CERT_FILE, or for S3 in AWS_CA_BUNDLE",
            endpoint(&text).unwrap_or_else(|| "the store".to_owned()),
            proxies()
        ),
        Some(HttpErrorKind::Connect) => match endpoint(&text) {
            Some(endpoint) => format!("no connection to {endpoint}{}: {root}", proxies()),
            None => format!("no connection to the store{}: {root}", proxies()),
        },
        Some(HttpErrorKind::Timeout) => "the store did not answer in time".to_owned(),
        Some(HttpErrorKind::Interrupted | HttpErrorKind::Request) => {
            format!("the connection to the store broke: {root}")
        }
        Some(HttpErrorKind::Decode) => format!("the answer can't be read: {root}"),
        _ => root,
    }
}

/// Returns whether this reason of the transport is a certificate of an unknown issuer.
pub(super) fn is_untrusted(root: &str) -> bool {
    root.contains("UnknownIssuer")
}

/// Returns how the transport of a request failed, if it did.
pub(super) fn transport(error: &object_store::Error) -> Option<HttpErrorKind> {
    let http = cause(error).map(|Transport(error)| error).or_else(|| cause(error));
    http.map(HttpError::kind)
}

/// Returns whether a connection broke, so that the store may have done what was asked.
pub(super) fn is_broken(error: &object_store::Error) -> bool {
    use HttpErrorKind::{Interrupted, Request, Timeout};
    matches!(transport(error), Some(Interrupted | Request | Timeout))
}

/// Returns the first cause of this type, the error itself included.
pub(super) fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Returns the errors of the system among an error and its causes.
pub(super) fn io_errors<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a io::Error> {
    iter::successors(Some(error), |error| within(*error)).filter_map(|error| error.downcast_ref())
}

/// Returns the next cause. The source of an error of the system is not the error within it, but
/// that one's source.
fn within<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(within) => Some(within),
        None => error.source(),
    }
}

/// Returns the limit that left no descriptor for a request, if that is why it failed.
pub(super) fn lacks_descriptor(error: &(dyn Error + 'static)) -> Option<String> {
    let why = |error: &io::Error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => {
            Some("this process has all the files open that it may; raise LimitNOFILE (ulimit -n)")
        }
        Some(Errno::ENFILE) => {
            Some("this host has all the files open that it may; raise fs.file-max")
        }
        _ => None,
    };
    io_errors(error).find_map(why).map(str::to_owned)
}

/// Returns why a request failed whose answer says nothing of the object, in spite of its status:
/// the clocks differ, or a web page came.
pub(super) fn no_word_of_the_object(error: &object_store::Error) -> Option<String> {
    let text = full_text(error);
    let (status, body) = answer(&text)?;
    if element(body, "Code") == Some("RequestTimeTooSkewed") {
        let time = |name| element(body, name).unwrap_or("something else");
        return Some(format!(
            "the clock of this host says {}, and that of the store {}: set this host's clock",
            time("RequestTime"),
            time("ServerTime")
        ));
    }
    is_web_page(body).then(|| {
        let proxies = proxies();
        format!("{status} came with a web page: look for a proxy or a login page before the store{proxies}")
    })
}

fn is_web_page(body: &str) -> bool {
    let begin = body.get(..256).unwrap_or(body).to_ascii_lowercase();
    begin.contains("<html") || begin.contains("<!doctype html")
}

/// Returns the proxies that the environment names, in brackets and without passwords.
fn proxies() -> String {
    let set: Vec<String> = named_proxies().collect();
    if set.is_empty() { String::new() } else { format!(" ({})", set.join(", ")) }
}

fn named_proxies() -> impl Iterator<Item = String> {
    let shown = |name: &&str| {
        let url = url::Url::parse(&std::env::var(name).ok()?).ok()?;
        Some(format!("{name} is {}", url.origin().ascii_serialization()))
    };
    PROXY_VARIABLES.iter().filter_map(shown)
}

/// Returns the variables of this process by which requests take proxies and trust authorities.
pub(super) fn network() -> Vec<String> {
    let set = |name: &&str| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
        Some(format!("{name} is {value}"))
    };
    let others = ["NO_PROXY", "no_proxy", "SSL_CERT_FILE", "AWS_CA_BUNDLE"];
    named_proxies().chain(others.iter().filter_map(set)).collect()
}

/// Returns what a page is that is no listing.
pub(super) fn not_a_listing(page: &str) -> String {
    if page.contains("<Error") {
        answered("is", "an error document", page)
    } else if is_web_page(page) {
        format!("is a web page: look for a proxy or a login page before the store{}", proxies())
    } else {
        "is no listing, or not a whole one".to_owned()
    }
}

/// Returns the link that leads round in a circle, if that is why a folder cannot be listed.
pub(super) fn link_loop(error: &object_store::Error) -> Option<String> {
    let text = full_text(error);
    let (_, why) = text.split_once("Unable to walk dir: ")?;
    if let Some((_, links)) = why.split_once("File system loop found: ") {
        return Some(links.to_owned());
    }
    let (link, _) = why.split_once(": Too many levels of symbolic links")?;
    let link = link.strip_prefix("IO error for operation on ").unwrap_or(link);
    Some(format!("{link} points to itself"))
}

/// Returns the status in the text of an error. The library sorts the answers to most requests by
/// status, but not those to listings, and shows the status only in messages.
pub(super) fn status(error: &object_store::Error) -> Option<u16> {
    let text = full_text(error);
    let (status, _) = answer(&text)?;
    status.get(..3)?.parse().ok()
}

/// Returns whether S3 refused the session token of temporary credentials. It does so with status
/// 400, as if the request were malformed.
pub(super) fn refuses_token(error: &object_store::Error) -> bool {
    let text = full_text(error);
    let code = answer(&text).and_then(|(_, body)| element(body, "Code"));
    code.is_some_and(|code| TOKEN_CODES.contains(&code))
}

/// Returns whether a store refused the keys of a request as old or unknown, as far as its answer
/// tells. The answer to a HEAD tells only its status.
pub(super) fn refuses_keys(error: &object_store::Error) -> bool {
    let text = full_text(error);
    let Some((status, body)) = answer(&text) else { return false };
    match element(body, "Code") {
        Some(code) => code == "InvalidAccessKeyId" || TOKEN_CODES.contains(&code),
        None => ["400", "401", "403"].iter().any(|refusal| status.starts_with(refusal)),
    }
}

/// Returns whether another identity may be served: the store refused this one, or it has no keys.
pub(super) fn refuses_identity(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(error, E::PermissionDenied { .. } | E::Unauthenticated { .. })
        || refuses_keys(error)
        || matches!(status(error), Some(401 | 403))
        || matches!(cause(error), Some(Explained { remedy: Some(_), .. }))
}

/// Returns the status line and the body of an error answer.
fn answer(text: &str) -> Option<(&str, &str)> {
    let (_, answer) = text.split_once("status code: ")?;
    Some(answer.split_once(": ").unwrap_or((answer.trim_end_matches([':', ' ']), "")))
}

/// Joins `begin`, what came, and the store's own code and message.
pub(super) fn answered(begin: &str, what: &str, body: &str) -> String {
    let what = format!("{begin} {what}");
    let code = element(body, "Code");
    let message = element(body, "Message").map(|message| message.trim_end_matches('.'));
    let detail = match (code, message) {
        (Some(code), Some(message)) if !message.is_empty() => format!("{code}: {message}"),
        (Some(code), _) => code.to_owned(),
        (None, Some(message)) => message.to_owned(),
        // Pages of proxies say nothing more than their status.
        (None, None) => return what,
    };
    let detail: String = unescaped(&detail).chars().take(MESSAGE_CHARS).collect();
    format!("{what} ({detail})")
}

/// Returns the text of an element of the store's XML document.
pub(super) fn element<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.trim())
}

/// Returns text without the escapes of XML. Stores in Go write quotes by number.
fn unescaped(text: &str) -> String {
    let quotes = [("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&#39;", "'")];
    let others = [("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    let escapes = quotes.iter().chain(&others);
    escapes.fold(text.to_owned(), |text, (escape, meant)| text.replace(escape, meant))
}

/// Returns the host and port that a request went to.
fn endpoint(text: &str) -> Option<String> {
    let (_, request) = text.rsplit_once("Error performing ")?;
    let url = url::Url::parse(request.split(' ').nth(1)?).ok()?;
    url.has_host().then(|| url.origin().ascii_serialization())
}

/// Joins the texts of an error and of its causes, without repetitions.
fn full_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        let source = io::Error::other(text.to_owned());
        object_store::Error::Generic { store: "S3", source: Box::new(source) }
    }

    #[test]
    fn shows_an_answer_by_status_and_message_of_the_store() {
        let document = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code>\
                        <Message>Please reduce your request rate.</Message></Error>";
        let error = generic(&format!(
            "Error performing GET http://h:9/b/k in 1ms - Server returned non-2xx status code: \
             503 Service Unavailable: {document}"
        ));
        assert_eq!(
            plain(&error),
            "the store answered 503 Service Unavailable (SlowDown: Please reduce your request rate)"
        );
        assert_eq!(status(&error), Some(503));
        let bare = generic("Server returned non-2xx status code: 504 Gateway Timeout: ");
        assert_eq!(plain(&bare), "the store answered 504 Gateway Timeout");
        let page = generic("status code: 502 Bad Gateway: <html>oh no</html>");
        assert_eq!(plain(&page), "the store answered 502 Bad Gateway");
    }

    #[test]
    fn clocks_that_differ_are_both_named() {
        let error = generic(
            "status code: 403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code><Message>Too far.\
             </Message><RequestTime>20261128T100000Z</RequestTime>\
             <ServerTime>2026-11-28T11:30:00Z</ServerTime></Error>",
        );
        let why = no_word_of_the_object(&error).expect("known");
        assert!(why.contains("20261128T100000Z") && why.contains("2026-11-28T11:30:00Z"), "{why}");
    }

    #[test]
    fn web_page_is_no_answer_about_an_object() {
        let page = generic("status code: 404 Not Found: <!DOCTYPE html><html>Log in</html>");
        let why = no_word_of_the_object(&page).expect("known");
        assert!(why.starts_with("404 Not Found came with a web page"), "{why}");
        let answer = generic("status code: 404 Not Found: <Error><Code>NoSuchKey</Code></Error>");
        assert_eq!(no_word_of_the_object(&answer), None);
    }

    #[test]
    fn lack_of_descriptors_is_found_below_the_errors_of_the_library() {
        let lacking = io::Error::from_raw_os_error(24);
        let within = io::Error::other(lacking);
        let error = object_store::Error::Generic { store: "S3", source: Box::new(within) };
        assert!(lacks_descriptor(&error).is_some_and(|why| why.contains("LimitNOFILE")));
        assert_eq!(lacks_descriptor(&generic("os error 24")), None);
    }

    #[test]
    fn escapes_of_xml_are_read_as_what_they_mean() {
        let error = generic(
            "status code: 403 Forbidden: <Error><Message>key &quot;A&amp;lt;&quot; isn&#39;t \
             known</Message></Error>",
        );
        assert_eq!(plain(&error), "the store answered 403 Forbidden (key \"A&lt;\" isn't known)");
    }

    #[test]
    fn refused_session_token_is_known_by_its_code() {
        let answer = |code: &str| {
            generic(&format!("status code: 400 Bad Request: <Error><Code>{code}</Code></Error>"))
        };
        assert!(refuses_token(&answer("ExpiredToken")) && refuses_token(&answer("InvalidToken")));
        assert!(!refuses_token(&answer("InvalidRequest")));
    }

    #[test]
    fn text_without_an_answer_has_no_status() {
        assert_eq!(status(&generic("connection reset")), None);
        assert_eq!(status(&generic("status code: ")), None);
        assert_eq!(plain(&generic("Connection reset.")), "connection reset");
    }

    #[test]
    fn connection_error_names_the_endpoint() {
        let refused = io::Error::from_raw_os_error(111);
        let error = object_store::Error::Generic {
            store: "S3",
            source: Box::new(HttpError::new(HttpErrorKind::Connect, refused)),
        };
        assert_eq!(plain(&error), "no connection to the store: connection refused");
        let text = "Generic S3 error: Error performing list request: Error performing GET \
                    http://127.0.0.1:9/bucket?list-type=2 in 2ms - HTTP error";
        assert_eq!(endpoint(text).as_deref(), Some("http://127.0.0.1:9"));
        assert_eq!(endpoint("Error performing GET REDACTED in 2ms - HTTP error"), None);
    }
}
