//! The files that are no data by their names: leftovers of other programs beside data.
//!
//! pyarrow, Spark and `datasets` read none of them either. A pattern of the user that spells the
//! mark of a rule brings its files back: `--include '_extra/*.parquet'`.

/// A rule: files that no owner of a folder means as data.
struct Rule {
    /// The begin of a segment that makes the rule apply. A pattern must spell it.
    mark: &'static str,
    /// Whether the rule applies to a segment that begins with the mark. The flag says whether the
    /// segment is the name of the file.
    applies: fn(segment: &str, is_name: bool) -> bool,
    /// The reason, as a clause behind the key.
    why: &'static str,
}

/// In this order: the first that applies gives the reason.
const RULES: [Rule; 7] = [
    Rule { mark: "._", applies: |_, is_name| is_name, why: "is a sidecar file of macOS" },
    Rule {
        mark: "__MACOSX",
        applies: |segment, is_name| !is_name && segment == "__MACOSX",
        why: "is a sidecar file of macOS",
    },
    Rule {
        mark: ".spark-staging",
        applies: |_, is_name| !is_name,
        why: "is a leftover of a Spark job",
    },
    Rule {
        mark: "_temporary",
        applies: |segment, is_name| !is_name && segment == "_temporary",
        why: "is a leftover of a Spark job",
    },
    Rule {
        mark: ".",
        applies: |_, _| true,
        why: "is hidden: a name in its path begins with a dot",
    },
    // `_x=y` is a folder of Hive partitions.
    Rule {
        mark: "_",
        applies: |segment, _| !segment.contains('='),
        why: "is hidden: a name in its path begins with an underscore",
    },
    Rule {
        mark: "cache-",
        applies: |segment, is_name| is_name && segment.ends_with(".arrow"),
        why: "is a cache that Hugging Face datasets can make again",
    },
];

/// Returns why the file with this key is no data. `spells` returns whether the user names files
/// that bear a mark.
pub(super) fn why_no_data(key: &str, spells: impl Fn(&str) -> bool) -> Option<&'static str> {
    // Few keys have a mark, and an index looks at millions.
    let is_marked = |segment: &str| segment.starts_with(['.', '_', 'c']);
    let name_begins = key.rfind('/').map_or(0, |slash| slash + 1);
    let mut begins = 0;
    for segment in key.split('/') {
        let is_name = begins == name_begins;
        begins += segment.len() + 1;
        if !is_marked(segment) {
            continue;
        }
        let mut rules = RULES.iter();
        let rule =
            rules.find(|rule| segment.starts_with(rule.mark) && (rule.applies)(segment, is_name));
        if let Some(rule) = rule
            && !spells(rule.mark)
        {
            return Some(rule.why);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_other_programs_are_no_data_and_partitions_are() {
        let why = |key| why_no_data(key, |_| false).unwrap_or("data");
        for (key, reason) in [
            ("a/b.parquet", "data"),
            ("_year=2024/b.parquet", "data"),
            ("cache-1.tar", "data"),
            ("tapes/data.bin", "data"),
            ("a/._b.parquet", "is a sidecar file of macOS"),
            ("__MACOSX/a/b.jpg", "is a sidecar file of macOS"),
            ("a/_temporary/0/part-1.parquet", "is a leftover of a Spark job"),
            (".spark-staging-1/part-1.parquet", "is a leftover of a Spark job"),
            (".ipynb_checkpoints/1.jpg", "is hidden: a name in its path begins with a dot"),
            (".DS_Store", "is hidden: a name in its path begins with a dot"),
            ("a/_SUCCESS", "is hidden: a name in its path begins with an underscore"),
            ("a/cache-1f.arrow", "is a cache that Hugging Face datasets can make again"),
        ] {
            assert_eq!(why(key), reason, "{key}");
        }
        assert_eq!(why_no_data("_a/x.npy", |mark| mark == "_"), None);
        assert!(why_no_data("_a/.x.npy", |mark| mark == "_").is_some());
    }
}
