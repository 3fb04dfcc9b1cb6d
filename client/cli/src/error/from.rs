//! Errors of the libraries as failures of a command.

use larder_client::{
    ErrorKind,
    admin::{DatasetError, FetchError, OriginError, UriError},
};

use super::{Exit, Failure};

const INDEX_AGAIN: &str = "index the dataset again: larder dataset index";

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidArgument => Self::Usage,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::PermissionDenied | ErrorKind::Unauthenticated => Self::Denied,
            ErrorKind::ResourceExhausted
            | ErrorKind::Unavailable
            | ErrorKind::OriginUnavailable => Self::Unavailable,
            ErrorKind::DataChanged | ErrorKind::DataLoss => Self::Data,
            _ => Self::Failed,
        }
    }
}

impl From<larder_client::Error> for Failure {
    fn from(error: larder_client::Error) -> Self {
        let (why, hint) = (error.why().map(str::to_owned), error.advice_text().map(str::to_owned));
        let hint = hint
            .or_else(|| (error.kind() == ErrorKind::DataChanged).then(|| INDEX_AGAIN.to_owned()));
        Self { exit: error.kind().into(), what: error.what().to_owned(), why, hint }
    }
}

impl From<UriError> for Failure {
    fn from(error: UriError) -> Self {
        let general = "an origin is s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or \
                       file:///folder; a version of it ends in @tag";
        let hint = error.hint().unwrap_or_else(|| general.to_owned());
        Self::new(Exit::Usage, error.to_string()).hint(hint)
    }
}

impl From<OriginError> for Failure {
    fn from(error: OriginError) -> Self {
        use OriginError as E;
        let exit = match &error {
            // The command line is right, but the prefix or the store is not fit for it.
            E::Loop { .. } | E::TooMany { .. } | E::TooLarge { .. } | E::Unsupported { .. } => {
                Exit::Failed
            }
            error => ErrorKind::from(error).into(),
        };
        let hint = match &error {
            E::Credentials { origin, why, remedy } => {
                let what = format!("no credentials for {origin}");
                return Self::new(exit, what).why(why).hint(remedy);
            }
            E::Settings { .. } => "larder doctor URI shows which settings are in effect",
            E::NotFound { .. } => "check the bucket, the prefix and AWS_ENDPOINT_URL",
            E::Denied { remedy, .. } => {
                remedy.unwrap_or("larder doctor URI shows which rights are missing")
            }
            E::Conflict { .. } => "try again",
            E::Busy { .. } | E::Failed { .. } => {
                "larder doctor URI checks whether the origin can be reached"
            }
            _ => return Self::new(exit, error.to_string()),
        };
        Self::new(exit, error.to_string()).hint(hint)
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        use FetchError as E;
        match error {
            E::Changed { object, why } => {
                let what = format!("{object} changed since it was indexed");
                Self::new(Exit::Data, what).why(why).hint(INDEX_AGAIN)
            }
            E::Origin(OriginError::NotFound { object, why }) => {
                let what = format!("{object} is gone since it was indexed");
                Self::new(Exit::Data, what).why(why).hint(INDEX_AGAIN)
            }
            E::Origin(error) => error.into(),
            other => Self::new(Exit::Unavailable, other.to_string()).hint("try again"),
        }
    }
}

impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Self {
        use DatasetError as E;
        let hint = |text: &str| Some(text.to_owned());
        let (exit, hint) = match error {
            E::Origin(error) => return error.into(),
            E::Fetch(error) => return error.into(),
            E::Uri(error) => return error.into(),
            E::File { .. } => {
                (Exit::Data, hint("repair or remove the file; nothing was published"))
            }
            E::NothingToIndex { .. } => {
                let formats = "give the prefix that holds the files, or their format with --format; \
                               flat token files need --dtype, --window and --stride";
                (Exit::NotFound, hint(formats))
            }
            E::Inconsistent { .. } | E::Build { .. } => (Exit::Failed, None),
            E::Manifest { .. } | E::Tag { .. } => (Exit::Data, hint(INDEX_AGAIN)),
            _ => (ErrorKind::from(&error).into(), error.hint()),
        };
        Self { exit, what: error.to_string(), why: None, hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_client::admin::OriginUri;

    #[test]
    fn missing_credentials_exit_as_denied_with_the_remedy() {
        let origin = OriginUri::parse("s3://b/p").unwrap();
        let (why, remedy) = ("none set".to_owned(), "set them".to_owned());
        let failure = Failure::from(OriginError::Credentials { origin, why, remedy });
        assert_eq!((failure.exit, failure.hint.as_deref()), (Exit::Denied, Some("set them")));
    }
}
