//! Addresses of datasets, as users write them.

use std::{
    env,
    path::{Path, PathBuf, absolute},
};

use larder_dataset::{Addressed, DatasetError, NamedFiles, OriginUri, UriError, WritePolicy};

use crate::{DatasetName, Error, ErrorKind, runtime};

/// A text with such a beginning is a path, even if the file does not exist.
const BEGINNINGS: [&str; 4] = ["/", "./", "../", "~/"];

/// The advice for a text that looks like no kind of address.
const GENERAL_HINT: &str = "write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or \
                            file:///folder, with @tag or without";

/// Finds the dataset that addresses name. The files among them, if they do not name a prefix.
pub(super) fn find_name(
    uris: &[String],
    manifest: Option<&str>,
    write: Option<WritePolicy>,
) -> Result<(DatasetName, Option<NamedFiles>), Error> {
    let write = write.map_or_else(WritePolicy::of_process, Ok);
    let write = write.map_err(|why| {
        let what = format!("{} can't be used", WritePolicy::VARIABLE);
        Error::new(ErrorKind::InvalidArgument, what).because(why)
    })?;
    let manifest = manifest.map(parse_uri).transpose()?;
    let (reference, files) = match resolved(uris)? {
        Addressed::Prefix(reference) => (reference, None),
        Addressed::Files(files) => (files.reference(), Some(files)),
    };
    Ok((DatasetName { reference, manifest, write }, files))
}

/// Finds out what addresses mean.
pub(super) fn resolved(uris: &[String]) -> Result<Addressed, Error> {
    runtime::block_on(larder_dataset::resolve(uris))?.map_err(|error| match error {
        DatasetError::Uri(error) => not_an_address(uris.first().map_or("", |uri| uri), error),
        error => {
            let what = format!("cannot look for {}", uris.join(", "));
            Error::new(ErrorKind::from(&error), what).with_source(error)
        }
    })
}

/// Parses the address of a prefix or an object.
fn parse_uri(text: &str) -> Result<OriginUri, Error> {
    OriginUri::parse(text).map_err(|error| not_an_address(text, error))
}

fn not_an_address(text: &str, error: UriError) -> Error {
    let hint = match folder_at(text) {
        Some(address) => format!("for the local folder write {address}"),
        None => error.hint().unwrap_or_else(|| GENERAL_HINT.to_owned()),
    };
    Error::new(ErrorKind::InvalidArgument, format!("'{text}' is not the address of a dataset"))
        .because(error.why())
        .with_source(error)
        .hint(hint)
}

/// Parses the address of a prefix. Refuses one with an ending like a tag, because opening it would
/// mean that tag.
pub(super) fn parse_prefix(uri: &str) -> Result<OriginUri, Error> {
    let prefix = parse_uri(uri)?;
    let Some((before, tag)) = uri.rsplit_once('@').filter(|(_, tag)| !tag.contains('/')) else {
        return Ok(prefix);
    };
    let what = format!("'{uri}' names a version, not a prefix");
    let hint = format!(
        "to index '{before}' as the version '{tag}', give the tag apart; if '@' is part of its name, end the \
         prefix with '/', here and where it is opened"
    );
    Err(Error::new(ErrorKind::InvalidArgument, what).hint(hint))
}

/// The address of a local folder, by its path. `None` if the text does not look like a path.
fn folder_at(text: &str) -> Option<OriginUri> {
    if text.contains("://") {
        return None;
    }
    let path = match text.strip_prefix("~/") {
        Some(below) => Path::new(&env::var_os("HOME")?).join(below),
        None => PathBuf::from(text),
    };
    let is_path = BEGINNINGS.iter().any(|beginning| text.starts_with(beginning));
    let whole = match path.canonicalize() {
        Err(_) if is_path => absolute(&path).ok()?,
        found => found.ok()?,
    };
    OriginUri::parse(&format!("file://{}", whole.to_str()?)).ok()
}

#[cfg(test)]
mod tests {
    use larder_dataset::DatasetRef;

    use super::*;

    fn address(text: &str) -> Option<String> {
        folder_at(text).map(|uri| uri.to_string())
    }

    #[test]
    fn path_gets_file_address_and_dataset_name_gets_none() {
        assert_eq!(address("/no/such/folder/").as_deref(), Some("file:///no/such/folder"));
        let here = env::current_dir().unwrap();
        assert_eq!(address("./data"), Some(format!("file://{}/data", here.display())));
        assert_eq!(address("src"), Some(format!("file://{}/src", here.display())));
        let home = env::var("HOME").unwrap();
        assert_eq!(address("~/no-such-folder"), Some(format!("file://{home}/no-such-folder")));
        for no_path in ["imagenet", "s3://bucket/data", "http://host/data", "../no-such/../x", ""] {
            assert_eq!(address(no_path), None, "{no_path}");
        }
    }

    #[test]
    fn web_address_and_pattern_get_a_hint_with_the_prefix() {
        let refused = |text: &str| {
            let error = find_name(&[text.to_owned()], None, None).unwrap_err();
            let words = |text: Option<&str>| text.unwrap_or_default().to_owned();
            (words(error.why()), words(error.advice_text()))
        };
        let (_, hint) = refused("https://bucket.s3.us-west-2.amazonaws.com/images");
        assert_eq!(hint, "write s3://bucket/images");
        let (why, hint) = refused("s3://bucket/images/*.npy");
        assert_eq!(why, "patterns are not understood");
        assert_eq!(hint, "name the prefix that the files lie under: s3://bucket/images");
        assert_eq!(refused("imagenet").1, GENERAL_HINT);
    }

    #[test]
    fn refuses_prefix_that_parses_as_reference_with_tag() {
        let refused = parse_prefix("s3://bucket/data@v3").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        let hint = refused.advice_text().unwrap();
        assert!(hint.contains("'s3://bucket/data'") && hint.contains("'v3'"), "{hint}");
        for prefix in ["s3://bucket/data", "s3://bucket/me@home/data", "s3://bucket/data@v3/"] {
            let opened = DatasetRef::parse(prefix).unwrap();
            assert_eq!((&parse_prefix(prefix).unwrap(), "latest"), (opened.uri(), opened.tag()));
        }
    }
}
