//! `credential_process`: a program that writes keys as JSON.
//!
//! It runs without a shell, with a time limit, and its output is bounded. Its output is never
//! shown, as it has secrets; its standard error is.
//!
//! Thread rule: async with tokio's processes.

use std::{process::Stdio, time::Duration};

use larder_base::printable_line;
use object_store::aws::AwsCredential;
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    time::timeout,
};

use super::keys::{Fetched, time};
use crate::{Variables, origin::messages::Explained};

/// Time for the program. Some of them ask a person, or open a browser.
const TIMEOUT: Duration = Duration::from_secs(60);
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
/// Characters of the program's own message that are shown.
const MESSAGE_CHARS: usize = 400;

/// A program, by the line of a profile.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) profile: String,
    pub(super) words: Vec<String>,
    /// The program gets these in place of those of this process.
    pub(super) variables: Variables,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl Process {
    pub(super) async fn fetch(&self) -> Result<Fetched, Explained> {
        let output = match timeout(TIMEOUT, self.run()).await {
            Ok(output) => output?,
            Err(_) => {
                let why = format!("did not end within {} s", TIMEOUT.as_secs());
                return Err(self.refused(&why));
            }
        };
        let answer: Answer = serde_json::from_slice(&output).map_err(|fault| {
            // The text of the fault may have a secret.
            let (line, column) = (fault.line(), fault.column());
            self.refused(&format!(
                "wrote no JSON with Version, AccessKeyId and SecretAccessKey (line {line}, column \
                 {column})"
            ))
        })?;
        if answer.version != 1 {
            return Err(self.refused(&format!("wrote Version {}, not 1", answer.version)));
        }
        let until = answer.expiration.as_deref().map(|text| {
            time(text).ok_or_else(|| self.refused("wrote an Expiration that is no time"))
        });
        let keys = AwsCredential {
            key_id: answer.access_key_id,
            secret_key: answer.secret_access_key,
            token: answer.session_token,
        };
        Ok(Fetched { keys, until: until.transpose()? })
    }

    /// Runs the program, and returns its output.
    async fn run(&self) -> Result<Vec<u8>, Explained> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).kill_on_drop(true);
        for (name, _) in Variables::of_process().iter() {
            command.env_remove(name);
        }
        command.envs(self.variables.iter());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let unusable = |error: std::io::Error| self.refused(&format!("can't run: {error}"));
        let mut child = command.spawn().map_err(unusable)?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (out, err) = tokio::join!(head(out), head(err));
        let status = child.wait().await.map_err(unusable)?;
        if !status.success() {
            let said = String::from_utf8_lossy(&err);
            let said: String = printable_line(said.trim()).chars().take(MESSAGE_CHARS).collect();
            let said = if said.is_empty() { "nothing".into() } else { format!("'{said}'") };
            return Err(self.refused(&format!("failed ({status}) and said {said}")));
        }
        if out.len() as u64 > OUTPUT_BYTES_MAX {
            return Err(self.refused(&format!("wrote more than {OUTPUT_BYTES_MAX} bytes")));
        }
        Ok(out)
    }

    fn refused(&self, why: &str) -> Explained {
        let Self { profile, words, .. } = self;
        Explained::refusal(
            format!("the credential_process '{}' of profile {profile} {why}", words[0]),
            "run its command line by hand, and mend it or the profile".into(),
        )
    }
}

/// Reads to the end. Keeps the head, which is one byte longer than the limit if there was more.
async fn head(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        // What can't be read is missing, and the answer no JSON.
        let _ = (&mut stream).take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    kept
}

/// Splits a command line as a shell does, without any other of its rules. `None` if a quote does
/// not end.
pub(super) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(characters.next()?),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '\\' => match characters.next()? {
                            c @ ('"' | '\\') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_split_as_shlex_splits_them() {
        // What Python's shlex.split gives.
        for (line, words) in [
            ("a  b\tc", Some(&["a", "b", "c"][..])),
            (r#"'a b' "c d"e"#, Some(&["a b", "c de"])),
            (r#"a\ b "\"\\\$" '\'"#, Some(&["a b", r#""\\$"#, r"\"])),
            ("a # b", Some(&["a", "#", "b"])),
            ("'' $HOME", Some(&["", "$HOME"])),
            ("", Some(&[])),
            ("'a", None),
            (r#""a\""#, None),
            (r"a\", None),
        ] {
            assert_eq!(
                split(line).as_deref(),
                words.map(|w| w.iter().map(ToString::to_string).collect::<Vec<_>>()).as_deref(),
                "{line}"
            );
        }
    }
}
