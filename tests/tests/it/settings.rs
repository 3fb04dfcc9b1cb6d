//! The variables that `docs/operating.md` lists, with odd values: no program panics, and a refusal
//! names the variable or its option. Those of stores are tried in larder-dataset.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use larder_tests::node::binary;
use larder_tests::tool::{said, stdout};
use larder_tests::{repeats, words};

use crate::host_node::end_nodes;

/// Programs that run at once.
const RUNS: usize = 4;

const ODD: [&str; 22] = include!("../../src/odd_values.in");

/// Returns the variables of the page's table that are not of stores.
fn listed() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operating.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once("\n## Variables\n").expect("its section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split("`, `"));
    let names = names.map(|name| name.trim_end_matches('`').to_owned());
    let stores = ["AWS_", "GOOGLE_", "AZURE_"];
    names.filter(|name| !stores.iter().any(|store| name.starts_with(store))).collect()
}

/// A program that a variable sets up, in a folder of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Node,
    Tool,
    Client,
}

impl Program {
    const ALL: [Self; 3] = [Self::Node, Self::Tool, Self::Client];

    /// Returns the programs that read a variable. `help` is that of the node and of the tool.
    fn of(name: &str, help: &[String; 2]) -> Vec<Self> {
        let is_foreign = !name.starts_with("LARDER_");
        let marks = [format!("[env: {name}="), format!("[env: {name}]")];
        let told = help.each_ref().map(|page| marks.iter().any(|mark| page.contains(mark)));
        let reads = |program: &Self| match program {
            Self::Node => told[0],
            Self::Tool => told[1] || ["LARDER_TOKEN", "LARDER_SOCKET"].contains(&name),
            Self::Client => told == [false, false] || name == "LARDER_MEMORY",
        };
        let uses = |program: &Self| is_foreign || reads(program);
        // Without the folder of this test, a client would use that of the user.
        let is_apart = |program: &Self| *program != Self::Client || name != "XDG_RUNTIME_DIR";
        Self::ALL.into_iter().filter(uses).filter(is_apart).collect()
    }

    /// Returns the program with settings that work, in a folder for its files.
    fn command(self, name: &str, data: &str, folder: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", "20"]).current_dir(folder).env_clear();
        let path = |name: &str| folder.join(name).into_os_string();
        command.env("XDG_RUNTIME_DIR", folder).env("HOME", folder);
        command.env("LARDER_MEMORY", "16MiB").env("LARDER_TOKEN", "0123456789abcdef");
        match self {
            Self::Node => {
                command
                    .arg(binary("larder-node"))
                    .args(["--exit-with-stdin", "--divide-timing=100"]);
                command.env("LARDER_ORIGIN", data).env("LARDER_SOCKET", path("larder.sock"));
                for listen in ["LARDER_LISTEN", "LARDER_DATA_LISTEN"] {
                    command.env(listen, "127.0.0.1:0");
                }
                match name {
                    "LARDER_MEMBER" => command.env_remove("LARDER_TOKEN"),
                    name if name.starts_with("LARDER_ETCD") => {
                        command.env("LARDER_ETCD", "http://127.0.0.1:1")
                    }
                    "LARDER_TOKEN_FILE" => {
                        command.env_remove("LARDER_TOKEN").env("LARDER_STATE", path("state"))
                    }
                    _ => command.env("LARDER_STATE", path("state")),
                };
            }
            Self::Tool => {
                command.arg(binary("larder")).args(["ring", "pause", "--yes"]);
                command.env("LARDER_CLUSTER", "http://127.0.0.1:1");
            }
            Self::Client => {
                let client = PathBuf::from(env!("CARGO_BIN_EXE_larder-test-client"));
                command.arg(client).args([data, "host", "1", "1", "8"]);
                command.env("LARDER_NODE_BIN", binary("larder-node"));
                command.env("LARDER_HOST_NODE_LINGER", "1ms");
            }
        }
        command.stdin(Stdio::null());
        command
    }
}

/// Runs a program with an odd value of a variable. Returns what is wrong with its end.
fn wrong_end(program: Program, name: &str, value: &OsStr, data: &str) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = program.command(name, data, folder.path());
    let output = command.env(name, value).output().expect("it starts");
    end_nodes(folder.path());
    let (code, told) = (output.status.code(), said(&output));
    let option =
        format!("--{}", name.trim_start_matches("LARDER_").to_lowercase().replace('_', "-"));
    let is_named = told.contains(name) || told.contains(&option);
    let is_right = match code {
        Some(0) => true,
        Some(101 | 124..) | None => false,
        // Nothing listens where the tool looks.
        Some(5) if program == Program::Tool => true,
        Some(_) => is_named,
    };
    let shown = value.to_string_lossy().chars().take(40).collect::<String>();
    (!is_right || told.contains("panicked"))
        .then(|| format!("{program:?} with {name}={shown:?}: {code:?} {told}"))
}

#[test]
fn odd_values_of_listed_variables_are_taken_or_refused_by_name() {
    let help = [("larder-node", &["--help"][..]), ("larder", &["ring", "pause", "--help"])];
    let help = help.map(|(program, args)| {
        stdout(&Command::new(binary(program)).args(args).output().expect("it starts"))
    });
    let listed = listed();
    assert!(listed.len() > 35, "{} variables found: does the test still see?", listed.len());
    let folder = tempfile::tempdir().expect("a folder");
    words::write(&folder.path().join("words"), 1, 8, 16);
    let data = format!("file://{}/words", folder.path().display());
    let odd = ODD.iter().filter(|value| !value.contains('\0')).map(OsString::from);
    let worst = [OsString::from("x".repeat(100_000)), OsString::from_vec(b"a\xff".to_vec())];
    let values: Vec<OsString> = odd.step_by(repeats(4, 1)).chain(worst).collect();
    let runs: Vec<_> = listed
        .iter()
        .flat_map(|name| Program::of(name, &help).into_iter().map(move |program| (program, name)))
        .flat_map(|(program, name)| values.iter().map(move |value| (program, name, value)))
        .collect();
    let try_all = |runs: &[(Program, &String, &OsString)]| -> Vec<String> {
        let tried = runs.iter();
        tried.filter_map(|(program, name, value)| wrong_end(*program, name, value, &data)).collect()
    };
    let wrong = thread::scope(|scope| {
        let parts = runs.chunks(runs.len().div_ceil(RUNS));
        let running: Vec<_> = parts.map(|part| scope.spawn(|| try_all(part))).collect();
        running.into_iter().flat_map(|run| run.join().expect("no panic")).collect::<Vec<_>>()
    });
    println!("{} runs", runs.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
