//! Limits: shared ones stand together, and a limit that one file alone uses stands in that file.

use std::collections::BTreeMap;

use super::{size, source::sources};

/// Where the shared limits stand.
const HOME: &str = "proto/base/src/limits";

/// Returns the limits that have no use, or one that is no reason to stand among the shared ones.
pub(crate) fn misplaced() -> Vec<String> {
    let sources = sources();
    let (mut shared, mut related) = (BTreeMap::new(), String::new());
    let mut others = Vec::new();
    for source in size::product(&sources) {
        let code = source.production_code().join("\n");
        if source.path.starts_with(HOME) {
            shared.extend(code.lines().filter_map(defined).map(|name| (name.to_owned(), 0)));
            related
                .extend(code.split("const _: ").skip(1).filter_map(|rest| rest.split("};").next()));
        } else {
            others.push(code);
        }
    }
    assert!(shared.len() > 50, "{} limits found: does the rule still see?", shared.len());
    for code in others {
        let words = words(&code);
        for (_, files) in shared.iter_mut().filter(|(name, _)| words.contains(&name.as_str())) {
            *files += 1;
        }
    }
    let related = words(&related);
    let belongs = |name: &str, files| match files {
        0 => false,
        1 => related.contains(&name),
        _ => true,
    };
    let misplaced = shared.iter().filter(|(name, files)| !belongs(name, **files));
    misplaced.map(|(name, files)| format!("{name}: named in {files} files")).collect()
}

fn words(code: &str) -> Vec<&str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').collect()
}

/// Returns the name of the limit that a line defines.
fn defined(line: &str) -> Option<&str> {
    line.strip_prefix("pub const ")?.split(':').next()
}
