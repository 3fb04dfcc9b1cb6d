//! Addresses of files: one object, several, or names with braces. They are a dataset of their own,
//! under the tag of their names.
//!
//! `s3://bucket/data/{000..146}.tar` is the prefix `s3://bucket/data`, of which the index includes
//! `{000..146}.tar`. A list of addresses has the folder that all lie in as its prefix.

use crate::{
    DatasetError, DatasetRef, Origin, OriginError, OriginUri, UriError,
    index::format_of,
    manifest::sha256,
    uri::{Scheme, refuse},
};

/// What addresses mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addressed {
    /// All data under a prefix, in a version.
    Prefix(DatasetRef),
    /// Some files.
    Files(NamedFiles),
}

/// Files under one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFiles {
    /// The folder that all lie in.
    pub prefix: OriginUri,
    /// Their names under it, as [`IndexOptions::include`](crate::IndexOptions::include).
    pub include: Vec<String>,
}

impl NamedFiles {
    /// Returns the tag under which they are indexed: equal for equal names.
    pub fn tag(&self) -> String {
        let digest = sha256(self.include.join("\n").as_bytes());
        let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("files-{digits}")
    }

    /// Returns the reference to the dataset of these files.
    pub fn reference(&self) -> DatasetRef {
        let text = format!("{}/@{}", self.prefix, self.tag());
        DatasetRef::parse(&text).expect("an address and a tag")
    }
}

/// Finds out what addresses mean. Asks the origin whether a single address with the ending of a
/// data file is an object: folders have such names too.
///
/// # Errors
/// One is no address, or they lie in several buckets.
pub async fn resolve(texts: &[String]) -> Result<Addressed, DatasetError> {
    let [text] = texts else {
        return Ok(Addressed::Files(files(texts)?));
    };
    if text.contains('{') {
        return Ok(Addressed::Files(files(texts)?));
    }
    let reference = DatasetRef::parse(text)?;
    let is_latest = reference.tag() == DatasetRef::TAG_DEFAULT;
    if is_latest
        && format_of(reference.uri().path()).is_some()
        && is_object(reference.uri()).await?
    {
        return Ok(Addressed::Files(files(texts)?));
    }
    Ok(Addressed::Prefix(reference))
}

async fn is_object(uri: &OriginUri) -> Result<bool, OriginError> {
    match Origin::connect(uri).await?.head(uri).await {
        Ok(_) => Ok(true),
        // The reader of the prefix gets the same refusal, and says so.
        Err(OriginError::NotFound { .. } | OriginError::Denied { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes addresses apart into the folder of all, and a name for each.
fn files(texts: &[String]) -> Result<NamedFiles, UriError> {
    let Some(first) = texts.first() else {
        return Err(refuse("", "the list of addresses is empty"));
    };
    let whole = |text: &String| {
        // The folder must be an address without braces, and the bucket has none.
        let text = text.trim_end_matches('/');
        let fixed = text.find('{').unwrap_or(text.len());
        let slash = text[..fixed].rfind('/');
        let scheme_ends = text.find("://").map_or(0, |at| at + "://".len());
        let slash = slash.filter(|slash| *slash >= scheme_ends);
        let slash = slash.ok_or_else(|| refuse(text, "it names no object in a bucket"))?;
        Ok((OriginUri::parse(&text[..=slash])?, text[slash + 1..].to_owned()))
    };
    let parts = texts.iter().map(whole).collect::<Result<Vec<_>, UriError>>()?;
    let (folder, _) = &parts[0];
    if let Some(other) = parts.iter().position(|(other, _)| {
        (other.scheme(), other.bucket()) != (folder.scheme(), folder.bucket())
    }) {
        return Err(refuse(&texts[other], "it lies in another bucket than the first of the list"));
    }
    let mut common = folder.path().to_owned();
    for (folder, _) in &parts {
        while !is_folder_of(&common, folder.path()) {
            common.truncate(common.rfind('/').unwrap_or(0));
        }
    }
    let prefix = match folder.scheme() {
        Scheme::File => format!("file:///{common}"),
        scheme => format!("{}://{}/{common}", scheme.as_str(), folder.bucket()),
    };
    let prefix = OriginUri::parse(&prefix).map_err(|error| refuse(first, error.why()))?;
    let include = parts.iter().map(|(folder, name)| {
        let below = folder.path()[common.len()..].trim_start_matches('/');
        let key = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let key = glob::Pattern::escape(&key);
        let is_folder = !key.contains('{') && format_of(&key).is_none();
        if is_folder { format!("{key}/**/*") } else { key }
    });
    let mut include: Vec<String> = include.collect();
    include.sort();
    include.dedup();
    Ok(NamedFiles { prefix, include })
}

/// Returns whether `path` is `folder` or lies in it.
fn is_folder_of(folder: &str, path: &str) -> bool {
    folder.is_empty()
        || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(texts: &[&str]) -> Result<(String, Vec<String>), UriError> {
        let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
        files(&texts).map(|files| (files.prefix.to_string(), files.include))
    }

    #[test]
    fn files_lie_under_the_folder_of_all() {
        for (texts, prefix, include) in [
            (&["s3://b/d/{00..46}.tar"][..], "s3://b/d", &["{00..46}.tar"][..]),
            (&["s3://b/d/x.tar"], "s3://b/d", &["x.tar"]),
            (&["s3://b/x.tar"], "s3://b", &["x.tar"]),
            (&["s3://b/d/{a,b}/x.tar"], "s3://b/d", &["{a,b}/x.tar"]),
            (&["s3://b/d/a/1.tar", "s3://b/d/ab/2.tar"], "s3://b/d", &["a/1.tar", "ab/2.tar"]),
            (&["s3://b/a/1.tar", "s3://b/c/2.tar"], "s3://b", &["a/1.tar", "c/2.tar"]),
            (&["s3://b/y.tar", "s3://b/x.tar", "s3://b/y.tar"], "s3://b", &["x.tar", "y.tar"]),
            (&["s3://b/d/train", "s3://b/d/x.tar"], "s3://b/d", &["train/**/*", "x.tar"]),
            (&["file:///t/a.npy", "file:///t/b.npy"], "file:///t", &["a.npy", "b.npy"]),
            (&["s3://b/[1]*.npy"], "s3://b", &["[[]1[]][*].npy"]),
        ] {
            let (found, names) = named(texts).unwrap();
            assert_eq!(found, prefix, "{texts:?}");
            assert_eq!(names, include, "{texts:?}");
        }
    }

    #[test]
    fn files_of_two_buckets_are_no_dataset() {
        for (texts, why) in [
            (&["s3://b/x.tar", "s3://c/x.tar"][..], "another bucket"),
            (&["s3://{b,c}/x.tar"], "no object in a bucket"),
            (&[], "is empty"),
            (&["x.tar"], "no object in a bucket"),
        ] {
            let error = named(texts).unwrap_err().to_string();
            assert!(error.contains(why), "{texts:?}: {error}");
        }
    }

    #[test]
    fn equal_names_have_one_tag() {
        let tag = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            files(&names).unwrap().reference().to_string()
        };
        let one = tag(&["s3://b/d/x.tar", "s3://b/d/y.tar"]);
        assert_eq!(one, tag(&["s3://b/d/y.tar", "s3://b/d/x.tar"]));
        assert!(one.starts_with("s3://b/d@files-"), "{one}");
        assert_ne!(one, tag(&["s3://b/d/x.tar"]));
    }
}
