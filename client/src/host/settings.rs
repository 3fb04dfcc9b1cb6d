//! The environment variables of a host's node, above all those that two processes must have in
//! common to share it.
//!
//! Another endpoint or region means another bucket under the same address. So the node serves only
//! processes with an equal target (`target`): variables, and settings of their profiles.
//! Credentials may differ, as each process hands its own over.
//!
//! All users of the host see the fingerprint in the arguments of the node. Only this user can read
//! the salt, so other users can't test guesses of a secret against the fingerprint.

use std::{
    env,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process,
};

use larder_base::ErrorKind;
use larder_dataset::{Variables, target};
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};

use crate::{Error, process::variables};

/// The name of the salt's file in the folder of all nodes of a user.
const SALT_FILE: &str = "salt";

/// The key of all fingerprints of a user on a host.
pub(super) type Salt = [u8; 32];

/// Returns a setting: as typed, or by a variable that is not empty.
///
/// # Errors
/// `InvalidArgument` if the variable is not UTF-8.
pub(super) fn text(typed: Option<String>, variable: &str) -> Result<Option<String>, Error> {
    let set = || env::var_os(variable).filter(|value| !value.is_empty());
    let given = typed.map(OsString::from).or_else(set);
    given.map(OsString::into_string).transpose().map_err(|_| {
        let what = format!("{variable} is not UTF-8");
        Error::new(ErrorKind::InvalidArgument, what).hint("set it again")
    })
}

/// The salt in this folder, if there is one.
pub(super) fn find_salt(base: &Path) -> io::Result<Option<Salt>> {
    match fs::read(base.join(SALT_FILE)) {
        Ok(bytes) => match bytes.try_into() {
            Ok(salt) => Ok(Some(salt)),
            Err(_) => Err(io::Error::other(format!("its file '{SALT_FILE}' is damaged"))),
        },
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why),
    }
}

/// The salt in this folder. Makes it if it is missing. If several processes make it, all use that
/// of the first: a link appears only with the whole content behind it, and never replaces a file.
pub(super) fn make_salt(base: &Path) -> io::Result<Salt> {
    if let Some(salt) = find_salt(base)? {
        return Ok(salt);
    }
    let mut salt = Salt::default();
    let random = SystemRandom::new().fill(&mut salt);
    random.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    let path = base.join(SALT_FILE);
    let draft = base.join(format!("{SALT_FILE}-{}-{:x}", process::id(), fastrand::u64(..)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let linked = file.write_all(&salt).and_then(|()| fs::hard_link(&draft, &path));
    fs::remove_file(&draft)?;
    match linked {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            find_salt(base)?.ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        linked => linked.map(|()| salt),
    }
}

/// Eight hex digits. Processes with equal digits may share a node.
pub(super) fn fingerprint(salt: &Salt) -> String {
    of(salt, &variables::look())
}

fn of(salt: &Salt, variables: &Variables) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, salt);
    hmac::sign(&key, &target(variables).to_block()).as_ref()[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, thread};

    use super::*;

    const SALT: Salt = [7; 32];

    fn digits(salt: &Salt, variables: &[(&str, &str)]) -> String {
        of(salt, &Variables::of(variables.iter().map(|(name, value)| (name.into(), value.into()))))
    }

    #[test]
    fn fingerprint_covers_targets_and_no_identities() {
        let none = digits(&SALT, &[]);
        assert_eq!(none.len(), 8);
        for name in ["AWS_ENDPOINT_URL", "AWS_REGION", "AZURE_STORAGE_ACCOUNT_NAME"] {
            let (one, other) = (digits(&SALT, &[(name, "a")]), digits(&SALT, &[(name, "b")]));
            assert!(one != none && one != other, "{name}");
        }
        let keys = ["AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AZURE_STORAGE_SAS_KEY", "PATH"];
        for name in keys {
            assert_eq!(digits(&SALT, &[(name, "a")]), none, "{name}");
        }
    }

    #[test]
    fn fingerprint_depends_on_the_salt_but_not_on_the_order() {
        let (a, b) = (("AWS_ENDPOINT_URL", "x"), ("AWS_REGION", "y"));
        assert_eq!(digits(&SALT, &[a, b]), digits(&SALT, &[b, a]));
        assert_ne!(digits(&SALT, &[a, b]), digits(&[8; 32], &[a, b]));
    }

    #[test]
    fn concurrent_starters_get_one_private_salt() {
        let base = tempfile::tempdir().unwrap();
        assert_eq!(find_salt(base.path()).unwrap(), None);
        let salts: Vec<Salt> = thread::scope(|scope| {
            let makers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| make_salt(base.path()).unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(salts.iter().all(|salt| *salt == salts[0] && *salt != Salt::default()));
        assert_eq!(find_salt(base.path()).unwrap(), Some(salts[0]));
        let files: Vec<_> = fs::read_dir(base.path()).unwrap().flatten().collect();
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn damaged_salt_is_an_error() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join(SALT_FILE), [1; 5]).unwrap();
        assert!(make_salt(base.path()).unwrap_err().to_string().contains("'salt' is damaged"));
    }
}
