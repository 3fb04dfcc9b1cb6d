//! ERROR: a request that failed.

use larder_base::{Error, ErrorKind, head, limits};

use super::{Kind, WireError, codec, header};

/// ERROR: why a request ends without its answer.
///
/// ```text
/// offset width
///      0     2  kind, as `ErrorKind::number`
///      2     2  reserved, 0
///      4     -  message, utf-8, at most 2,048 bytes
/// ```
#[derive(Debug, Clone)]
pub struct ErrorReply {
    /// The failure.
    pub error: Error,
}

impl ErrorReply {
    /// Appends the frame. A longer message is cut.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let message = head(self.error.message(), limits::ERROR_MESSAGE_BYTES_MAX);
        header::frame(Kind::Error, request, 0, out, |body| {
            body.extend_from_slice(&self.error.kind().number().to_le_bytes());
            body.extend_from_slice(&[0; 2]);
            body.extend_from_slice(message.as_bytes());
        });
    }

    /// Decodes a body. A kind that only newer peers know becomes [`ErrorKind::Internal`].
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::Error, body);
        let kind = ErrorKind::from_number(fields.u16()?).unwrap_or(ErrorKind::Internal);
        fields.zero_u16()?;
        Ok(Self { error: Error::new(kind, fields.text()?) })
    }
}

impl From<Error> for ErrorReply {
    fn from(error: Error) -> Self {
        Self { error }
    }
}
