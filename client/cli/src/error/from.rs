//! Errors of the libraries as failures of a command.

use larder_client::{
    ErrorKind,
    admin::{DatasetError, FetchError, OriginError, UriError},
};

use super::{Exit, Failure};

const INDEX_AGAIN: &str = "index the dataset again: larder dataset index";

impl From<larder_client::Error> for Failure {
    fn from(error: larder_client::Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::InvalidArgument => Exit::Usage,
            ErrorKind::NotFound => Exit::NotFound,
            ErrorKind::PermissionDenied | ErrorKind::Unauthenticated => Exit::Denied,
            ErrorKind::ResourceExhausted
            | ErrorKind::Unavailable
            | ErrorKind::OriginUnavailable => Exit::Unavailable,
            ErrorKind::DataChanged | ErrorKind::DataLoss => Exit::Data,
            _ => Exit::Failed,
        };
        let (why, hint) = (error.why().map(str::to_owned), error.advice_text().map(str::to_owned));
        let hint = hint
            .or_else(|| (error.kind() == ErrorKind::DataChanged).then(|| INDEX_AGAIN.to_owned()));
        Self { exit, what: error.what().to_owned(), why, hint }
    }
}

impl From<UriError> for Failure {
    fn from(error: UriError) -> Self {
        let hint = "an origin is s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or \
                    file:///folder; a version of it ends in @tag";
        Self::new(Exit::Usage, error.to_string()).hint(hint)
    }
}

impl From<OriginError> for Failure {
    fn from(error: OriginError) -> Self {
        use OriginError as E;
        let what = |exit, what: String| Self::new(exit, what);
        match error {
            E::Credentials { origin, why, remedy } => {
                what(Exit::Denied, format!("no credentials for {origin}")).why(why).hint(remedy)
            }
            E::Settings { origin, why } => {
                what(Exit::Usage, format!("the settings for {origin} can't be used"))
                    .why(why)
                    .hint("larder doctor URI shows which settings are in effect")
            }
            E::NotFound { object, why } => what(Exit::NotFound, format!("{object} was not found"))
                .why(why)
                .hint("check the bucket, the prefix and AWS_ENDPOINT_URL"),
            E::Denied { object, why, remedy } => {
                what(Exit::Denied, format!("access to {object} was denied"))
                    .why(why)
                    .hint(remedy.unwrap_or("larder doctor URI shows which rights are missing"))
            }
            E::Conflict { object, why } => {
                what(Exit::Failed, format!("{object} was changed by somebody else meanwhile"))
                    .why(why)
                    .hint("try again")
            }
            E::Unsupported { object, why } => {
                what(Exit::Failed, format!("the store can't do this with {object}")).why(why)
            }
            E::TooMany { prefix, limit } => {
                what(Exit::Failed, format!("there are more than {limit} objects under {prefix}"))
                    .hint("index a smaller prefix")
            }
            E::Loop { prefix, why } => {
                what(Exit::Failed, format!("the files under {prefix} can't be listed"))
                    .why(why)
                    .hint("remove that link, or use a folder without it")
            }
            E::Failed { object, why } => {
                what(Exit::Unavailable, format!("the request for {object} failed"))
                    .why(why)
                    .hint("larder doctor URI checks whether the origin can be reached")
            }
            other => what(Exit::Failed, other.to_string()),
        }
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        use FetchError as E;
        match error {
            E::Changed { object, why } => {
                Self::new(Exit::Data, format!("{object} changed since it was indexed"))
                    .why(why)
                    .hint(INDEX_AGAIN)
            }
            E::Origin(OriginError::NotFound { object, why }) => {
                Self::new(Exit::Data, format!("{object} is gone since it was indexed"))
                    .why(why)
                    .hint(INDEX_AGAIN)
            }
            E::Origin(error) => error.into(),
            other => Self::new(Exit::Unavailable, other.to_string()).hint("try again"),
        }
    }
}

impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Self {
        use DatasetError as E;
        match error {
            E::Origin(error) => error.into(),
            E::Fetch(error) => error.into(),
            E::Uri(error) => error.into(),
            E::File { object, field, why } => {
                Self::new(Exit::Data, format!("{object} can't be indexed"))
                    .why(format!("{field}: {why}"))
                    .hint("repair or remove the file; nothing was published")
            }
            E::NothingToIndex { prefix, why } => Self::new(
                Exit::NotFound,
                format!("nothing under {prefix} can be indexed"),
            )
            .why(why)
            .hint(
                "give the prefix that holds .safetensors or .npy files; flat token files need \
                     --dtype, --window and --stride",
            ),
            E::Inconsistent { prefix, why } => {
                Self::new(Exit::Failed, format!("the files under {prefix} do not fit together"))
                    .why(why)
            }
            E::Option { option, why } => {
                Self::new(Exit::Usage, format!("{option} can't be that")).why(why)
            }
            E::Build { prefix, source } => {
                Self::new(Exit::Failed, format!("{prefix} can't be indexed")).why(source)
            }
            E::Manifest { object, source } => {
                Self::new(Exit::Data, format!("{object} is no manifest that can be used"))
                    .why(source)
                    .hint(INDEX_AGAIN)
            }
            E::Tag { object, why } => {
                Self::new(Exit::Data, format!("{object} can't be used")).why(why).hint(INDEX_AGAIN)
            }
            E::NoSuchVersion { .. } | E::NoManifest { .. } => {
                let hint = error.hint().unwrap_or_default();
                Self::new(Exit::NotFound, error.to_string()).hint(hint)
            }
            E::Moved { .. } => {
                let hint = error.hint().unwrap_or_default();
                Self::new(Exit::Data, error.to_string()).hint(hint)
            }
            E::TagContended { object, attempts } => {
                Self::new(Exit::Unavailable, format!("{object} could not be moved"))
                    .why(format!("somebody else moved it {attempts} times meanwhile"))
                    .hint("try again")
            }
            other => Self::new(Exit::Failed, other.to_string()),
        }
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
