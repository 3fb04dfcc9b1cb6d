//! Paths of this host where the address of a dataset is wanted.

use std::{
    env,
    path::{Path, PathBuf, absolute},
};

use larder_dataset::OriginUri;

/// With these a text is a path, whether there is something or not.
const BEGINNINGS: [&str; 4] = ["/", "./", "../", "~/"];

/// The address of the local folder that a text names by its path; `None` if it looks like no path.
pub(super) fn address_of(text: &str) -> Option<OriginUri> {
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
    use super::*;

    fn address(text: &str) -> Option<String> {
        address_of(text).map(|uri| uri.to_string())
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
}
