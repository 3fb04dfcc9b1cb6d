//! Faults between an object store and its reader, by kind.
//!
//! A fault changes the answer to one granted request. Such a request has a valid signature and
//! would have succeeded; a read would have got at least one byte. Most faults are other answers
//! that hyper sends. For faults that break HTTP itself, the connection writes to the bare socket.
//! [`FaultPlan`] maps requests to faults.

mod answer;
mod corrupt;
mod honest;
mod plan;
mod script;

pub(crate) use answer::{Action, spoil};
pub(crate) use honest::Honest;
pub use plan::FaultPlan;
pub(crate) use plan::Injection;
pub(crate) use script::{Script, Step};

/// A kind of request that faults can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Reads an object, or a range of it.
    Get,
    /// Asks for the headers of an object.
    Head,
    /// Lists keys.
    List,
    /// Writes an object.
    Put,
    /// Deletes an object.
    Delete,
}

/// The correct reaction of a client to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultClass {
    /// Odd but legal, with the right bytes: the client may accept them or retry.
    Harmless,
    /// Visibly wrong, or a request to come back: a retry gets the right bytes.
    Transient,
    /// Says that a retry is of no use: a clear error is the right answer.
    Permanent,
    /// Only the bytes are wrong: only a checksum that was known before shows it.
    Silent,
}

/// Writes the enum, its list, its names and its classes from one table.
macro_rules! faults {
    (listings { $($(#[doc = $page_doc:literal])+ $page:ident,)+ }
        $($class:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ })+) => {
        /// One kind of fault, met by one request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Fault {
            $($($(#[doc = $doc])+ $name,)+)+
            $($(#[doc = $page_doc])+ $page,)+
        }

        impl Fault {
            /// Every kind that a read can meet.
            pub const ALL: &'static [Fault] = &[$($(Fault::$name,)+)+];

            /// Returns the correct reaction of a client.
            #[must_use]
            pub fn class(self) -> FaultClass {
                match self {
                    $($(Fault::$name)|+ => FaultClass::$class,)+
                    $(Fault::$page => FaultClass::Transient,)+
                }
            }

            /// Returns its name, as in the source.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($(Fault::$name => stringify!($name),)+)+
                    $(Fault::$page => stringify!($page),)+
                }
            }
        }
    };
}

faults! {
    listings {
        /// A page that says that more keys follow, and not where.
        PageWithoutToken,
        /// A page whose next page is itself.
        PageRepeated,
    }
    Harmless {
        /// The right answer a quarter of a second late.
        LateAnswer,
        /// The right body in small pieces with pauses, over half a second in all.
        Trickle,
        /// An unrequested 100 Continue, then the right answer.
        ContinueFirst,
        /// The right answer, `Connection: close`, and a connection that closes after a quarter of a
        /// second.
        LateClose,
    }
    Transient {
        /// 503 with S3's SlowDown document.
        SlowDown,
        /// 503 without a body.
        ServiceUnavailable,
        /// 500 with S3's InternalError document.
        InternalError,
        /// 502 with a proxy's HTML page.
        BadGateway,
        /// 504 without a body.
        GatewayTimeout,
        /// 429 with Retry-After: 0.
        TooManyRequests,
        /// 200 with an HTML page, as a captive portal or proxy sends it.
        OkHtmlPage,
        /// 200 with an S3 error document as its body.
        OkErrorDocument,
        /// 206 with the right Content-Range and an S3 error document as its body.
        PartialErrorDocument,
        /// 200 with the whole object: the Range was ignored.
        RangeIgnored,
        /// 206 with the whole object and a matching Content-Range.
        RangeWidened,
        /// 206 with the first half of the range and a matching Content-Range.
        RangeShortened,
        /// 206 with bytes up to and past the object's end, and a matching Content-Range.
        RangePastEnd,
        /// Content-Range starts one byte too late; length and bytes are as requested.
        ContentRangeStartWrong,
        /// Content-Range ends one byte too late.
        ContentRangeEndWrong,
        /// Content-Range states another total.
        ContentRangeTotalWrong,
        /// Content-Range states no total (`*`).
        ContentRangeTotalUnknown,
        /// Content-Range is missing from a 206.
        ContentRangeMissing,
        /// Content-Range can't be parsed.
        ContentRangeGarbled,
        /// A 206 of `multipart/byteranges` with one part.
        MultipartRanges,
        /// The right bytes, uncompressed, under `Content-Encoding: gzip`.
        GzipLie,
        /// No ETag.
        EtagMissing,
        /// 206 with Content-Length 0 and no bytes.
        BodyEmpty,
        /// Content-Length is ten less than the range, and so is the body.
        ContentLengthShort,
        /// Content-Length is ten more than the body.
        ContentLengthLong,
        /// Two Content-Length headers that disagree.
        ContentLengthTwice,
        /// More bytes on the connection than Content-Length says: a piece of the body repeats.
        BodyTooLong,
        /// The body ends half-way; Content-Length stays.
        BodyCutHalf,
        /// The body ends after its first byte; Content-Length stays.
        BodyCutAfterFirstByte,
        /// The body lacks its last byte; Content-Length stays.
        BodyCutLastByte,
        /// The right body in chunks. Legal, but S3 always sends a Content-Length, and clients rely
        /// on it.
        ChunkedBody,
        /// The right body without Content-Length, ended by closing the connection. Legal, but S3
        /// does not do it.
        CloseDelimitedBody,
        /// No Content-Length, and the connection closes half-way: HTTP shows no end.
        CloseDelimitedCut,
        /// Chunks that stop half-way without the last chunk.
        ChunkedCut,
        /// Chunks that end properly after half the bytes.
        ChunkedShort,
        /// A chunk with a size that is not a number.
        ChunkedGarbled,
        /// The connection closes without an answer.
        CloseBeforeHeaders,
        /// The connection closes in the middle of the headers.
        CloseInHeaders,
        /// The connection is reset without an answer.
        ResetBeforeHeaders,
        /// The connection is reset after the headers.
        ResetAfterHeaders,
        /// The connection is reset in the middle of the body.
        ResetInBody,
        /// No answer for the plan's stall time, then the connection closes.
        StallBeforeHeaders,
        /// Headers, then nothing for the plan's stall time, then the connection closes.
        StallAfterHeaders,
        /// Half the body, then nothing for the plan's stall time, then the connection closes.
        StallInBody,
        /// A status line that is not HTTP.
        StatusLineGarbage,
        /// The bare body without status line or headers.
        NoHeaders,
        /// A header of one MiB.
        HeaderHuge,
        /// A header line without a colon and with control characters.
        HeaderGarbage,
        /// The right answer twice on one connection, which stays open. The second one collides with
        /// the next request.
        AnswerTwice,
    }
    Permanent {
        /// 403 with S3's ExpiredToken document.
        TokenExpired,
        /// 403 with S3's AccessDenied document.
        AccessDenied,
        /// 404 with S3's NoSuchKey document, once, for an object that is there.
        NotFoundOnce,
        /// 412, once, for an ETag that matches.
        PreconditionFailedOnce,
        /// 304 to a request without If-None-Match.
        NotModified,
        /// 301 with S3's PermanentRedirect document and a Location that needs another signature.
        MovedPermanently,
        /// 307 to a place that needs another signature.
        TemporaryRedirect,
        /// The right bytes under another ETag, as if the object had been overwritten.
        EtagChanged,
        /// The right bytes under the same ETag made weak.
        EtagWeak,
        /// Another object in its place: another ETag, another total, other bytes.
        Overwritten,
    }
    Silent {
        /// One bit of the body flipped.
        BitFlipped,
        /// The last half of the body zeroed.
        TailZeroed,
        /// Two pieces of the body have changed places.
        PiecesSwapped,
        /// A piece of the body repeats in place of the next one; the length is right.
        PieceRepeated,
        /// The bytes of a range a little further on (or back), under the requested Content-Range.
        RangeShifted,
        /// The bytes of another object in the same directory.
        OtherObject,
        /// The bytes of an earlier version, under the current ETag.
        StaleBytes,
    }
}

impl Fault {
    /// The kinds that a request without a body in its answer can meet, and that a retry mends.
    pub const OF_ANY_REQUEST: &'static [Fault] = &[
        Fault::LateAnswer,
        Fault::SlowDown,
        Fault::ServiceUnavailable,
        Fault::InternalError,
        Fault::BadGateway,
        Fault::GatewayTimeout,
        Fault::TooManyRequests,
        Fault::CloseBeforeHeaders,
        Fault::CloseInHeaders,
        Fault::ResetBeforeHeaders,
    ];

    /// The kinds that a listing can meet, and that a retry mends.
    pub const OF_LISTINGS: &'static [Fault] = &[
        Fault::LateAnswer,
        Fault::Trickle,
        Fault::SlowDown,
        Fault::ServiceUnavailable,
        Fault::InternalError,
        Fault::BadGateway,
        Fault::TooManyRequests,
        Fault::OkHtmlPage,
        Fault::OkErrorDocument,
        Fault::BodyEmpty,
        Fault::BodyCutHalf,
        Fault::BodyCutLastByte,
        Fault::ContentLengthShort,
        Fault::ContentLengthLong,
        Fault::ChunkedBody,
        Fault::ChunkedCut,
        Fault::ChunkedShort,
        Fault::ChunkedGarbled,
        Fault::CloseDelimitedCut,
        Fault::CloseBeforeHeaders,
        Fault::CloseInHeaders,
        Fault::ResetBeforeHeaders,
        Fault::ResetAfterHeaders,
        Fault::ResetInBody,
        Fault::StatusLineGarbage,
        Fault::PageWithoutToken,
    ];

    /// Returns whether only a checksum known before the read shows that the bytes are wrong.
    #[must_use]
    pub fn needs_checksum(self) -> bool {
        self.class() == FaultClass::Silent
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn at_least_forty_fault_kinds_have_distinct_names() {
        let names: BTreeSet<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        assert!(Fault::ALL.len() >= 40, "{}", Fault::ALL.len());
    }
}
