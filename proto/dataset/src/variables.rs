//! The environment variables by which a process reaches stores.
//!
//! A node of a host reads for several programs of its user. Each hands its variables over, as a
//! block like that of a process, so that the node signs with the keys of the program that asks.
//! Variables that only name an identity may differ among the programs of one node. All others
//! decide which store an address means.
//!
//! Thread rule: plain values; reading profiles blocks for as long as the file system does.
//! Non-goals: the meaning of the variables, see the origin's settings.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

/// The families of variables of all stores.
const FAMILIES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Variables of other names that count too: the folder above `.aws`, an old name for Google Cloud,
/// and that of Azure's own services.
const OTHER_NAMES: [&str; 3] = ["HOME", "SERVICE_ACCOUNT", "IDENTITY_ENDPOINT"];

/// Variables that only name a signer, or the place of its keys.
const IDENTITY: [&str; 36] = [
    "HOME",
    "SERVICE_ACCOUNT",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SKIP_SIGNATURE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SKIP_SIGNATURE",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
];

/// The variables of a process that concern stores, in the order of their names.
///
/// `Debug` leaves the values out, as they may be secrets.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Variables(Vec<(OsString, OsString)>);

impl Variables {
    /// Takes those of this process.
    pub fn of_process() -> Self {
        Self::of(env::vars_os())
    }

    /// Takes those that concern stores.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut taken: Vec<_> =
            variables.into_iter().filter(|(name, _)| concerns_stores(name)).collect();
        taken.sort();
        Self(taken)
    }

    /// Writes them as a block: each as `NAME=VALUE` and a zero byte.
    pub fn to_block(&self) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in &self.0 {
            for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
                block.extend_from_slice(part);
            }
        }
        block
    }

    /// Reads a block. `None` if it is not whole, or has a variable that concerns no store.
    pub fn from_block(block: &[u8]) -> Option<Self> {
        let Some(block) = block.strip_suffix(b"\0") else {
            return block.is_empty().then(Self::default);
        };
        let read = |entry: &[u8]| {
            let equals = entry.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (entry[..equals].to_vec(), entry[equals + 1..].to_vec());
            let name = OsString::from_vec(name);
            concerns_stores(&name).then(|| (name, OsString::from_vec(value)))
        };
        let all = block.split(|byte| *byte == 0).map(read).collect::<Option<Vec<_>>>()?;
        Some(Self::of(all))
    }

    /// Returns all but those that only name an identity.
    pub(crate) fn without_identity(&self) -> Self {
        let is_identity = |name: &OsString| IDENTITY.iter().any(|id| name == id);
        Self(self.0.iter().filter(|(name, _)| !is_identity(name)).cloned().collect())
    }

    /// Iterates over names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

fn concerns_stores(name: &OsStr) -> bool {
    let is_of = |family: &str| name.as_bytes().starts_with(family.as_bytes());
    OTHER_NAMES.iter().any(|other| name == *other) || FAMILIES.into_iter().any(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Variables {
        Variables::of(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn a_block_gives_back_what_concerns_stores() {
        let some = of(&[("PATH", "/bin"), ("AWS_REGION", "a=b"), ("HOME", ""), ("AZURE_X", "\n")]);
        assert_eq!(some.iter().count(), 3);
        assert_eq!(Variables::from_block(&some.to_block()), Some(some));
        assert_eq!(Variables::from_block(b""), Some(Variables::default()));
        for bad in [&b"AWS_X=1"[..], b"AWS_X\0", b"PATH=/bin\0", b"\0", b"AWS_X=1\0\0"] {
            assert_eq!(Variables::from_block(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_text_of_them_has_no_values() {
        let text = format!("{:?}", of(&[("AWS_SECRET_ACCESS_KEY", "hidden")]));
        assert!(text.contains("AWS_SECRET_ACCESS_KEY") && !text.contains("hidden"), "{text}");
    }
}
