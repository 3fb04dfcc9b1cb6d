//! The commands in the documentation, compared with the programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use larder_tests::node::binary;

/// A command of Larder, and its place on the page.
struct Typed {
    place: String,
    words: Vec<String>,
}

/// Returns every page with commands to type.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("README.md"), root.join("deploy/README.md")];
    for folder in ["docs", "docs/python"] {
        let files = std::fs::read_dir(root.join(folder)).expect("the folder of pages");
        let files = files.map(|file| file.expect("an entry").path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    pages
}

/// Returns the code of a page: lines of blocks, joined where they continue, and code in sentences.
fn code(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, part) in page.split("```").enumerate() {
        if index % 2 == 1 {
            found.extend(part.replace("\\\n", " ").lines().map(str::to_owned));
        } else {
            found.extend(part.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " ")));
        }
    }
    found
}

/// Returns the calls of Larder's programs in a line of shell.
fn calls(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or_default().trim_start_matches("$ ");
    let pieces = line.split(['|', '&', ';', '>', '(', ')']);
    let words = |piece: &str| -> Vec<String> {
        let words = piece.split_whitespace();
        let words = words.map(|word| word.trim_matches(['"', '\'']).to_owned());
        words.skip_while(|word| word.contains('=')).collect()
    };
    let ours = |words: &Vec<String>| {
        words.len() > 1
            && matches!(words[0].as_str(), "larder" | "larder-node")
            && words.iter().all(|word| word != "...")
    };
    pieces.map(words).filter(ours).collect()
}

fn typed() -> Vec<Typed> {
    let mut typed = Vec::new();
    for path in pages() {
        let page = std::fs::read_to_string(&path).expect("a page");
        let calls = code(&page).into_iter().flat_map(|line| calls(&line));
        let place = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        typed.extend(calls.map(|words| Typed { place: place.clone(), words }));
    }
    typed
}

#[test]
fn commands_in_the_pages_are_accepted_by_the_programs() {
    let typed = typed();
    assert!(typed.len() > 20, "only {} commands found: does the test still see?", typed.len());
    let mut problems = Vec::new();
    for Typed { place, words } in &typed {
        let mut command = Command::new(binary(&words[0]));
        // With --help at its end a command is parsed and not run.
        let help = (words[1] != "help").then_some("--help");
        let output = command.args(&words[1..]).args(help).output().expect("it starts");
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            problems.push(format!("{place}: {}: {why}", words.join(" ")));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn front_page_of_the_client_shows_the_lines_of_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |name| std::fs::read_to_string(root.join(name)).expect("a file of the repository");
    let (readme, client) = (read("README.md"), read("client/src/lib.rs"));
    let lines = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    let page = client.lines().filter_map(|line| line.strip_prefix("//!"));
    let page: Vec<&str> = page.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let shown: Vec<&str> = page.into_iter().filter(|line| !line.starts_with("# ")).collect();
    let shown = shown.join("\n");
    let lines = lines.expect("Rust in the README");
    assert!(shown.contains(lines.trim_end()), "{lines} is not in the header of client/src/lib.rs");
}

#[test]
fn commands_are_found_in_blocks_and_sentences() {
    let page = "Say `larder node ls`, or:\n```\nA=b larder ring apply \\\n  \"x.plan\" --yes   # now\nlarder-node --memory 1GiB &\n\
                ls larder\n```\n```console\n$ larder ring pause\nwatch it with: larder ring status\n```\n`larder ... -o json`, `larder`";
    let found: Vec<Vec<String>> = code(page).iter().flat_map(|line| calls(line)).collect();
    let expected = [
        &["larder", "node", "ls"][..],
        &["larder", "ring", "apply", "x.plan", "--yes"],
        &["larder-node", "--memory", "1GiB"],
        &["larder", "ring", "pause"],
    ];
    assert_eq!(found, expected);
}
