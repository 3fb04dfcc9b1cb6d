//! Every kind of fault shows on the wire as its name says, and a client that retries and checks
//! reacts as its class says.

use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStoreExt, RetryConfig};

use larder_origin::{Fault, FaultClass, FaultPlan};

use crate::support::{Answer, End, PATIENCE, Site, builder, client, get, pattern, presigned};

const TOTAL: usize = 40_000;
const START: usize = 10_000;
const END: usize = 30_000;
const LENGTH: usize = END - START;
const STALL: Duration = Duration::from_secs(60);

/// A site with an object and its neighbour.
fn site() -> (Site, Vec<u8>) {
    let site = Site::new();
    let bytes = pattern(TOTAL);
    site.file("dir/object", &bytes);
    site.file("dir/neighbour", &vec![0x55; TOTAL]);
    (site, bytes)
}

/// The expected parts of a raw answer to the range `START..END`.
struct Seen<'a> {
    answer: &'a Answer,
    right: &'a [u8],
    whole: &'a [u8],
}

impl Seen<'_> {
    /// Whether the answer is as `fault` says.
    fn fits(&self, fault: Fault) -> bool {
        self.refusal_fits(fault)
            .or_else(|| self.label_fits(fault))
            .unwrap_or_else(|| self.wire_fits(fault))
    }

    fn content_range(&self) -> Option<&str> {
        self.answer.header("content-range")
    }

    /// A 206 with the right Content-Range.
    fn honest_range(&self) -> bool {
        self.answer.status == 206 && self.content_range() == Some("bytes 10000-29999/40000")
    }

    fn honest_head(&self) -> bool {
        self.honest_range() && self.answer.header("content-length") == Some("20000")
    }

    fn right_body(&self) -> bool {
        self.answer.body == self.right
    }

    fn wrong_body(&self) -> bool {
        self.answer.body.len() == LENGTH && !self.right_body()
    }

    /// The right bytes in a 206 with this Content-Range.
    fn labelled(&self, range: &str) -> bool {
        self.answer.status == 206 && self.right_body() && self.content_range() == Some(range)
    }

    /// Answers that refuse, or carry a document.
    fn refusal_fits(&self, fault: Fault) -> Option<bool> {
        let answer = self.answer;
        let says = |text: &str| String::from_utf8_lossy(&answer.body).contains(text);
        Some(match fault {
            Fault::SlowDown => answer.status == 503 && says("SlowDown"),
            Fault::ServiceUnavailable => answer.status == 503 && answer.body.is_empty(),
            Fault::InternalError => answer.status == 500 && says("InternalError"),
            Fault::BadGateway => answer.status == 502 && says("<html>"),
            Fault::GatewayTimeout => answer.status == 504,
            Fault::TooManyRequests => {
                answer.status == 429 && answer.header("retry-after") == Some("0")
            }
            Fault::OkHtmlPage => answer.status == 200 && says("<html>"),
            Fault::OkErrorDocument => answer.status == 200 && says("<Error>"),
            Fault::PartialErrorDocument => self.honest_range() && says("<Error>"),
            Fault::MultipartRanges => {
                answer.status == 206
                    && answer.head.contains("multipart/byteranges")
                    && says("--larder--")
            }
            Fault::TokenExpired => answer.status == 403 && says("ExpiredToken"),
            Fault::AccessDenied => answer.status == 403 && says("AccessDenied"),
            Fault::NotFoundOnce => answer.status == 404 && says("NoSuchKey"),
            Fault::PreconditionFailedOnce => answer.status == 412,
            Fault::NotModified => answer.status == 304,
            Fault::MovedPermanently => answer.status == 301 && answer.header("location").is_some(),
            Fault::TemporaryRedirect => answer.status == 307 && answer.header("location").is_some(),
            _ => return None,
        })
    }

    /// Answers of another range, other headers or other bytes.
    fn label_fits(&self, fault: Fault) -> Option<bool> {
        let (answer, right, whole) = (self.answer, self.right, self.whole);
        let (honest_head, right_body, wrong_body) =
            (self.honest_head(), self.right_body(), self.wrong_body());
        let content_range = self.content_range();
        let partial = answer.status == 206;
        let half = &right[..LENGTH / 2];
        Some(match fault {
            Fault::RangeIgnored => {
                answer.status == 200 && content_range.is_none() && answer.body == whole
            }
            Fault::RangeWidened => {
                partial && content_range == Some("bytes 0-39999/40000") && answer.body == whole
            }
            Fault::RangeShortened => {
                partial && content_range == Some("bytes 10000-19999/40000") && answer.body == half
            }
            Fault::RangePastEnd => {
                partial
                    && content_range == Some("bytes 10000-40511/40000")
                    && answer.body.len() == 30_512
            }
            Fault::ContentRangeStartWrong => self.labelled("bytes 10001-29999/40000"),
            Fault::ContentRangeEndWrong => self.labelled("bytes 10000-30000/40000"),
            Fault::ContentRangeTotalWrong => self.labelled("bytes 10000-29999/40001"),
            Fault::ContentRangeTotalUnknown => self.labelled("bytes 10000-29999/*"),
            Fault::ContentRangeMissing => partial && right_body && content_range.is_none(),
            Fault::ContentRangeGarbled => self.labelled("bytes from here to there"),
            Fault::GzipLie => {
                honest_head && right_body && answer.header("content-encoding") == Some("gzip")
            }
            Fault::EtagMissing => honest_head && right_body && answer.header("etag").is_none(),
            Fault::EtagChanged => honest_head && right_body && etag(answer).starts_with("\"000"),
            Fault::EtagWeak => honest_head && right_body && etag(answer).starts_with("w/\""),
            Fault::Overwritten => {
                wrong_body
                    && etag(answer).starts_with("\"111")
                    && content_range == Some("bytes 10000-29999/44096")
            }
            Fault::BodyEmpty => self.honest_range() && answer.header("content-length") == Some("0"),
            Fault::ContentLengthShort => {
                answer.header("content-length") == Some("19990")
                    && answer.body == right[..LENGTH - 10]
            }
            Fault::BitFlipped => {
                let bits = |(a, b): (&u8, &u8)| (a ^ b).count_ones();
                honest_head
                    && wrong_body
                    && answer.body.iter().zip(right).map(bits).sum::<u32>() == 1
            }
            Fault::TailZeroed => {
                honest_head && wrong_body && answer.body[LENGTH / 2..].iter().all(|b| *b == 0)
            }
            Fault::PiecesSwapped => {
                honest_head && wrong_body && answer.body[..4096] == right[LENGTH - 4096..]
            }
            Fault::PieceRepeated | Fault::StaleBytes => honest_head && wrong_body,
            Fault::RangeShifted => honest_head && answer.body == whole[START + 4096..END + 4096],
            Fault::OtherObject => honest_head && answer.body.iter().all(|byte| *byte == 0x55),
            _ => return None,
        })
    }

    /// Answers that break HTTP, or their connection, or stretch both.
    fn wire_fits(&self, fault: Fault) -> bool {
        let (answer, right) = (self.answer, self.right);
        let (honest_head, right_body) = (self.honest_head(), self.right_body());
        let half = &right[..LENGTH / 2];
        let closed = answer.end == End::Closed;
        let nothing = answer.raw.is_empty();
        match fault {
            Fault::LateAnswer | Fault::Trickle | Fault::LateClose => {
                honest_head && right_body && closed
            }
            Fault::ContinueFirst => {
                answer.raw.starts_with(b"HTTP/1.1 100") && answer.raw.ends_with(right)
            }
            Fault::ChunkedBody => {
                chunked(answer).is_some_and(|(body, ended)| body == right && ended)
            }
            Fault::CloseDelimitedBody => unframed(answer) && right_body && closed,
            Fault::ContentLengthLong => {
                answer.header("content-length") == Some("20010") && right_body && closed
            }
            Fault::ContentLengthTwice => {
                answer.head.matches("content-length").count() == 2 && right_body
            }
            Fault::BodyTooLong => {
                honest_head && answer.body.starts_with(right) && answer.body.len() > LENGTH
            }
            Fault::BodyCutHalf => honest_head && answer.body == half && closed,
            Fault::BodyCutAfterFirstByte => honest_head && answer.body == right[..1] && closed,
            Fault::BodyCutLastByte => honest_head && answer.body == right[..LENGTH - 1] && closed,
            Fault::CloseDelimitedCut => unframed(answer) && answer.body == half && closed,
            Fault::ChunkedCut => {
                chunked(answer).is_some_and(|(body, ended)| body == half && !ended)
            }
            Fault::ChunkedShort => {
                chunked(answer).is_some_and(|(body, ended)| body == half && ended)
            }
            Fault::ChunkedGarbled => chunked(answer).is_none() && answer.body.ends_with(half),
            Fault::CloseBeforeHeaders => nothing && closed,
            Fault::CloseInHeaders => {
                !nothing && answer.raw.len() < 400 && answer.head.is_empty() && closed
            }
            Fault::ResetBeforeHeaders => nothing && answer.end == End::Reset,
            Fault::ResetAfterHeaders => {
                honest_head && answer.body.is_empty() && answer.end == End::Reset
            }
            Fault::ResetInBody => honest_head && answer.body == half && answer.end == End::Reset,
            Fault::StallBeforeHeaders => nothing && answer.end == End::Open,
            Fault::StallAfterHeaders => {
                honest_head && answer.body.is_empty() && answer.end == End::Open
            }
            Fault::StallInBody => honest_head && answer.body == half && answer.end == End::Open,
            Fault::StatusLineGarbage => {
                answer.raw.starts_with(b"\x16\x03\x01") && answer.raw.ends_with(right)
            }
            Fault::NoHeaders => answer.raw == right,
            Fault::HeaderHuge => answer.head.len() > 1 << 20 && right_body,
            Fault::HeaderGarbage => answer.head.contains("no colon \u{1}") && right_body,
            Fault::AnswerTwice => {
                answer.raw.len() > 2 * LENGTH
                    && answer.raw.ends_with(right)
                    && answer.end == End::Open
            }
            _ => false,
        }
    }
}

fn etag(answer: &Answer) -> &str {
    answer.header("etag").unwrap_or("")
}

/// A 206 without any sign of its body's end.
fn unframed(answer: &Answer) -> bool {
    answer.status == 206
        && !answer.head.contains("content-length")
        && !answer.head.contains("chunked")
}

/// The bytes of a chunked body, and whether it ended with the last chunk.
fn chunked(answer: &Answer) -> Option<(Vec<u8>, bool)> {
    answer.header("transfer-encoding").filter(|encoding| *encoding == "chunked")?;
    let (mut rest, mut body) = (answer.body.as_slice(), Vec::new());
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        if size == 0 {
            return Some((body, true));
        }
        body.extend_from_slice(rest.get(line + 2..line + 2 + size)?);
        rest = rest.get(line + size + 4..)?;
    }
    Some((body, false))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_shows_on_the_wire_exactly_once() {
    let (site, whole) = site();
    let url = presigned(&site.server, "/bucket/dir/object").await;
    let right = &whole[START..END];
    for &fault in Fault::ALL {
        site.server.reset_counts();
        site.server.set_faults(FaultPlan::once(fault).stall(STALL));
        // Do not wait for the end of a connection that the fault keeps open.
        let stays_open = fault == Fault::AnswerTwice || fault.name().starts_with("Stall");
        let patience = if stays_open { Duration::from_secs(1) } else { PATIENCE };
        let answer = get(&site.server, &url, "bytes=10000-29999", patience);
        assert!(
            Seen { answer: &answer, right, whole: &whole }.fits(fault),
            "{fault:?}: {} bytes, {:?}, {} in the body\n{}",
            answer.raw.len(),
            answer.end,
            answer.body.len(),
            &answer.head[..answer.head.len().min(1000)]
        );
        let honest = get(&site.server, &url, "bytes=10000-29999", PATIENCE);
        assert!(honest.status == 206 && honest.body == right, "after {fault:?}");
        assert_eq!(site.server.counts().faults.get(fault.name()), Some(&1));
        assert_eq!(site.server.counts().object_reads, 2);
    }
}

/// A client's read: object_store's own checks, its retries, and a count of the bytes.
async fn read(site: &Site, retries: usize) -> Option<Vec<u8>> {
    let retry = RetryConfig { max_retries: retries, ..RetryConfig::default() };
    let store = builder(&site.server).with_retry(retry).build().expect("the settings are complete");
    let got = store.get_range(&Path::from("dir/object"), START as u64..END as u64).await;
    got.ok().map(|bytes| bytes.to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn harmless_faults_keep_bytes_and_silent_ones_change_them() {
    let (site, whole) = site();
    for &fault in Fault::ALL {
        site.server.set_faults(FaultPlan::once(fault).stall(STALL));
        match fault.class() {
            FaultClass::Harmless => {
                assert_eq!(read(&site, 0).await.as_deref(), Some(&whole[START..END]), "{fault:?}");
            }
            FaultClass::Silent => {
                let got = read(&site, 0).await.unwrap_or_else(|| panic!("{fault:?} was seen"));
                assert!(got.len() == LENGTH && got != whole[START..END], "{fault:?}");
            }
            FaultClass::Transient | FaultClass::Permanent => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_retries_transient_refusals_and_no_final_ones() {
    let (site, whole) = site();
    for fault in
        [Fault::SlowDown, Fault::InternalError, Fault::ResetBeforeHeaders, Fault::BodyCutHalf]
    {
        site.server.set_faults(FaultPlan::once(fault));
        assert_eq!(read(&site, 3).await.as_deref(), Some(&whole[START..END]), "{fault:?}");
    }
    for fault in [Fault::AccessDenied, Fault::NotFoundOnce, Fault::PreconditionFailedOnce] {
        site.server.set_faults(FaultPlan::once(fault));
        assert_eq!(read(&site, 3).await, None, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_survives_every_fault_on_one_byte_and_whole_objects() {
    let (site, whole) = site();
    let url = presigned(&site.server, "/bucket/dir/object").await;
    for &fault in Fault::ALL {
        site.server.set_faults(FaultPlan::always(fault).stall(Duration::from_millis(50)));
        for range in ["bytes=39999-39999", "bytes=0-0", "bytes=0-"] {
            let answer = get(&site.server, &url, range, PATIENCE);
            assert!(!fault.needs_checksum() || answer.status == 206, "{fault:?} {range}");
        }
    }
    site.server.clear_faults();
    assert_eq!(read(&site, 0).await.as_deref(), Some(&whole[START..END]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_a_stalled_read_at_once() {
    let (site, _) = site();
    site.server.set_faults(FaultPlan::always(Fault::StallInBody).stall(Duration::from_secs(600)));
    let store = client(&site.server);
    let stalled =
        tokio::spawn(
            async move { store.get_range(&Path::from("dir/object"), 0..100).await.map(drop) },
        );
    while site.server.counts().faults_injected() == 0 {
        tokio::task::yield_now().await;
    }
    let (_directory, server) = site.into_parts();
    tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    assert!(stalled.await.unwrap().is_err());
}
