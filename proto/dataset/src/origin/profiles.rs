//! The files of profiles that the AWS tools share: `~/.aws/credentials` and `~/.aws/config`.
//!
//! They are read as boto3 reads them. `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` name
//! other paths, and a file that does not exist has no profiles. The credentials file takes
//! precedence where both have a value.
//!
//! Thread rule: plain values; reading blocks for as long as the file system does. Non-goals: what
//! the values mean.

use std::{
    fmt,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use nix::unistd::{Uid, User};

use super::settings::Settings;

/// Largest file. Those of people with hundreds of accounts have a tenth of it.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where the files lie. `None` without a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paths {
    credentials: Option<PathBuf>,
    config: Option<PathBuf>,
    /// The folder with the tokens of logins.
    pub(super) logins: Option<PathBuf>,
}

impl Paths {
    pub(super) fn of(settings: &Settings) -> Self {
        let home = settings.get("HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(User::from_uid(Uid::current()).ok()??.dir));
        let aws = home.as_ref().map(|home| home.join(".aws"));
        let path = |variable, name: &str| match settings.get(variable) {
            Some(path) => match (path.strip_prefix("~/"), &home) {
                (Some(rest), Some(home)) => Some(home.join(rest)),
                _ => Some(path.into()),
            },
            None => aws.as_ref().map(|aws| aws.join(name)),
        };
        Self {
            credentials: path("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: path("AWS_CONFIG_FILE", "config"),
            logins: aws.as_ref().map(|aws| aws.join("sso/cache")),
        }
    }
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = [&self.credentials, &self.config].into_iter().flatten().collect();
        match paths[..] {
            [one, other] => write!(f, "{} or {}", one.display(), other.display()),
            _ => write!(f, "~/.aws, as there is no HOME"),
        }
    }
}

/// The profiles of both files.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    credentials: Vec<Section>,
    config: Vec<Section>,
}

/// A section of a file, such as `[profile dev]`.
#[derive(Debug)]
struct Section {
    name: String,
    file: PathBuf,
    values: Vec<Value>,
}

/// A value, and where it stands. `Debug` leaves the text out: it may be a secret.
pub(super) struct Value {
    key: String,
    pub(super) text: String,
    line: usize,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in line {}", self.key, self.line)
    }
}

impl Section {
    fn value(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|value| value.key == key)
    }
}

impl Profiles {
    /// Reads both files.
    ///
    /// # Errors
    /// The file, the line and the fault, for users.
    pub(super) fn read(paths: &Paths) -> Result<Self, String> {
        let sections = |path: &Option<PathBuf>| match path {
            Some(path) if path.is_file() => {
                let at = |why: String| format!("{}{why}", path.display());
                let text =
                    read_text(path).map_err(|error| at(format!(" can't be read: {error}")))?;
                parse(path, &text)
                    .map_err(|(line, why)| at(format!(", line {line} can't be read: {why}")))
            }
            _ => Ok(Vec::new()),
        };
        Ok(Self { credentials: sections(&paths.credentials)?, config: sections(&paths.config)? })
    }

    /// Returns a profile that one of the files has.
    pub(super) fn get<'a>(&'a self, name: &'a str) -> Option<Profile<'a>> {
        let credentials = self.credentials.iter().find(|section| section.name == name);
        let is_it = |section: &&Section| match kind_of(&section.name) {
            Some(("profile", of)) => of == name,
            _ => section.name == "default" && name == "default",
        };
        // The last section wins, as `[default]` and `[profile default]` are two.
        let config = self.config.iter().rfind(is_it);
        (credentials.is_some() || config.is_some()).then_some(Profile { name, credentials, config })
    }

    /// Returns the names of all profiles, in order.
    pub(super) fn names(&self) -> Vec<&str> {
        let config = self.config.iter().filter_map(|section| match kind_of(&section.name) {
            Some(("profile", name)) => Some(name),
            _ => (section.name == "default").then_some("default"),
        });
        let mut names: Vec<_> =
            self.credentials.iter().map(|section| &*section.name).chain(config).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns a value of `[sso-session name]`.
    pub(super) fn session(&self, name: &str, key: &str) -> Option<&str> {
        self.other("sso-session", name)?.value(key).map(|value| &*value.text)
    }

    /// Returns whether there is a section `[sso-session name]`.
    pub(super) fn has_session(&self, name: &str) -> bool {
        self.other("sso-session", name).is_some()
    }

    /// Returns a service's `endpoint_url` in `[services name]`.
    fn service_endpoint(&self, name: &str, service: &str) -> Option<&str> {
        let nested = &self.other("services", name)?.value(service)?.text;
        let mut pairs = nested.lines().filter_map(|line| line.split_once('='));
        pairs.find(|(key, _)| key.trim() == "endpoint_url").map(|(_, value)| value.trim())
    }

    fn other(&self, kind: &str, name: &str) -> Option<&Section> {
        self.config.iter().rfind(|section| kind_of(&section.name) == Some((kind, name)))
    }
}

/// A profile: one section of each file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Profile<'a> {
    pub(super) name: &'a str,
    credentials: Option<&'a Section>,
    config: Option<&'a Section>,
}

impl<'a> Profile<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        let value = |section: Option<&'a Section>| section?.value(key);
        value(self.credentials).or_else(|| value(self.config)).map(|value| &*value.text)
    }

    /// Returns the keys of one file: path, key id and secret, and the session token. Both must
    /// stand in the same file.
    ///
    /// # Errors
    /// The key that is missing, for users.
    pub(super) fn keys(&self, of: KeysOf) -> Result<Option<Keys<'a>>, String> {
        let section = match of {
            KeysOf::Credentials => self.credentials,
            KeysOf::Config => self.config,
        };
        let value = |key| section.and_then(|section| section.value(key));
        let (Some(section), Some(id)) = (section, value("aws_access_key_id")) else {
            return Ok(None);
        };
        let Some(secret) = value("aws_secret_access_key") else {
            return Err(format!(
                "profile {} has aws_access_key_id in {}, line {}, but no aws_secret_access_key",
                self.name,
                section.file.display(),
                id.line
            ));
        };
        let token = value("aws_security_token").or_else(|| value("aws_session_token"));
        let token = token.map(|token| &*token.text);
        Ok(Some(Keys { file: &section.file, id: &id.text, secret: &secret.text, token }))
    }

    /// Returns the address of a service that the profile sets.
    pub(super) fn endpoint(&self, all: &'a Profiles, service: &str) -> Option<&'a str> {
        let own = self.get("services").and_then(|name| all.service_endpoint(name, service));
        own.or_else(|| self.get("endpoint_url"))
    }
}

/// The file in which keys stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeysOf {
    Credentials,
    Config,
}

/// Keys as a file has them.
pub(super) struct Keys<'a> {
    pub(super) file: &'a PathBuf,
    pub(super) id: &'a str,
    pub(super) secret: &'a str,
    pub(super) token: Option<&'a str>,
}

/// Splits the name of a section of the config file into its kind and its name.
fn kind_of(section: &str) -> Option<(&str, &str)> {
    let (kind, name) = section.split_once(char::is_whitespace)?;
    let name = name.trim();
    let quoted = ['"', '\''].iter().find_map(|&q| name.strip_prefix(q)?.strip_suffix(q));
    match quoted {
        Some(quoted) => Some((kind, quoted)),
        None => (!name.contains(char::is_whitespace)).then_some((kind, name)),
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Parses a file by the rules of Python's `configparser`. A fault has its line, and never shows the
/// text of it.
fn parse(file: &Path, text: &str) -> Result<Vec<Section>, (usize, &'static str)> {
    let mut sections: Vec<Section> = Vec::new();
    // The indentation of the value that deeper lines continue.
    let mut open: Option<usize> = None;
    for (line, raw) in (1..).zip(text.lines()) {
        let content = raw.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        let depth = raw.len() - raw.trim_start().len();
        let last = sections.last_mut();
        if open.is_some_and(|above| depth > above)
            && let Some(value) = last.and_then(|section| section.values.last_mut())
        {
            value.text = format!("{}\n{content}", value.text);
            continue;
        }
        if let Some((name, _)) = content.strip_prefix('[').and_then(|rest| rest.rsplit_once(']')) {
            if sections.iter().any(|section| section.name == name) {
                return Err((line, "this section stands there twice"));
            }
            let (name, file) = (name.to_owned(), file.to_path_buf());
            sections.push(Section { name, file, values: Vec::new() });
            open = None;
            continue;
        }
        let value = value_in(content, line)?;
        let Some(section) = sections.last_mut() else {
            return Err((line, "it stands before the first [section]"));
        };
        if section.value(&value.key).is_some() {
            return Err((line, "its section has this key twice"));
        }
        section.values.push(value);
        open = Some(depth);
    }
    Ok(sections)
}

fn value_in(content: &str, line: usize) -> Result<Value, (usize, &'static str)> {
    match content.split_once(['=', ':']) {
        Some((key, text)) if !key.trim().is_empty() => {
            Ok(Value { key: key.trim().to_lowercase(), text: text.trim().to_owned(), line })
        }
        _ => Err((line, "it is neither 'key = value' nor a [section]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, Vec<(String, String)>)> {
        let values = |section: Section| {
            let pairs = section.values.into_iter().map(|value| (value.key, value.text));
            (section.name, pairs.collect())
        };
        parse(Path::new(""), text).unwrap().into_iter().map(values).collect()
    }

    #[test]
    fn values_are_read_as_configparser_reads_them() {
        let text = "# note\n; note\n\n[a] # b\nKey = v = w ; x\n  more\n\n  lines\nb: c\n d\n\
                    [profile \"x y\"]\n   deep = 1\n   flat =\nnext=2\n";
        let pair = |key: &str, text: &str| (key.to_owned(), text.to_owned());
        // What Python's configparser.RawConfigParser gives, without the empty line of the first.
        assert_eq!(
            parsed(text),
            [
                ("a".to_owned(), vec![pair("key", "v = w ; x\nmore\nlines"), pair("b", "c\nd")]),
                (
                    "profile \"x y\"".to_owned(),
                    vec![pair("deep", "1"), pair("flat", ""), pair("next", "2")]
                ),
            ]
        );
    }

    #[test]
    fn sections_have_a_kind_and_a_name() {
        for (section, of) in [
            ("profile dev", Some(("profile", "dev"))),
            ("profile   'a b'", Some(("profile", "a b"))),
            ("profile a b", None),
            ("default", None),
            ("sso-session s", Some(("sso-session", "s"))),
        ] {
            assert_eq!(kind_of(section), of);
        }
    }
}
