//! Warnings of a dataset that its owner may not mean: files that look like one sample each,
//! and files with names that say how many there are, as `train-00002-of-00004.parquet`.

use std::collections::{BTreeMap, BTreeSet};

use larder_base::printable_line;

use super::include::Include;
use crate::Snapshot;

/// Numbers that a warning names.
const NAMED_MAX: usize = 5;

/// The numbers that the files of one name have, by the count that they say.
type Numbers = BTreeMap<u64, BTreeSet<u64>>;

/// Returns what a user must know of a snapshot that was indexed now, each on one line.
pub fn index_warnings(snapshot: &Snapshot) -> Vec<String> {
    let mut warnings: Vec<String> = snapshot.one_sample_per_file().into_iter().collect();
    // A user that names files knows which.
    if Include::of(&snapshot.manifest).is_none() {
        let odd = of_numbers(snapshot.keys());
        warnings.extend(odd.iter().map(|warning| printable_line(warning).into_owned()));
    }
    warnings
}

/// Returns a warning for each name whose files are not all there, or say different counts.
fn of_numbers<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: BTreeMap<&str, Numbers> = BTreeMap::new();
    for (name, number, count) in keys.filter_map(parse) {
        names.entry(name).or_default().entry(count).or_default().insert(number);
    }
    names.iter().filter_map(|(name, numbers)| warning(name, numbers)).collect()
}

/// Splits `a/x-2-of-4.ext` into `a/x`, 2 and 4.
fn parse(key: &str) -> Option<(&str, u64, u64)> {
    let name_begins = key.rfind('/').map_or(0, |slash| slash + 1);
    let of = name_begins + key[name_begins..].rfind("-of-")?;
    let before = key[..of].trim_end_matches(|c: char| c.is_ascii_digit());
    let name = before.strip_suffix(['-', '_', '.'])?;
    let behind = &key[of + "-of-".len()..];
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    let number = key[before.len()..of].parse().ok()?;
    Some((name, number, behind[..digits].parse().ok()?))
}

fn warning(name: &str, numbers: &Numbers) -> Option<String> {
    let mut counts = numbers.iter();
    let (&count, found) = counts.next()?;
    if let Some((&other, _)) = counts.next() {
        return Some(format!(
            "files {name}-*-of-{count} and {name}-*-of-{other} lie together, and all of them are \
             data: is one set left from an earlier run? --include takes one of them"
        ));
    }
    // Some writers count from 1.
    let first = u64::from(!found.contains(&0) && found.contains(&count));
    let is_within = found.iter().all(|number| (first..count + first).contains(number));
    if !is_within || found.len() as u64 >= count {
        return None;
    }
    let missing = (first..count + first).filter(|number| !found.contains(number));
    let named: Vec<String> = missing.take(NAMED_MAX).map(|number| number.to_string()).collect();
    let more = (count - found.len() as u64).saturating_sub(named.len() as u64);
    let others = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!(
        "{} of the {count} files {name}-*-of-{count} are here; missing: {}{others}",
        found.len(),
        named.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_numbers_and_second_sets_are_named() {
        let of = |keys: &[&str]| of_numbers(keys.iter().copied());
        assert!(of(&["a-0-of-2.x", "a-1-of-2.x", "b-1-of-1.x", "c-0-of-1.x"]).is_empty());
        assert_eq!(
            of(&["d/a-00000-of-00004.x", "d/a-00003-of-00004-1f2e.x"]),
            ["2 of the 4 files d/a-*-of-4 are here; missing: 1, 2"]
        );
        assert_eq!(
            of(&["m-1-of-3.x", "m-3-of-3.x"]),
            ["2 of the 3 files m-*-of-3 are here; missing: 2"]
        );
        let two = of(&["a-0-of-2.x", "a-1-of-2.x", "a-0-of-3.x"]);
        assert!(two[0].starts_with("files a-*-of-2 and a-*-of-3 lie together"), "{two:?}");
        let many = of(&["a-0-of-1000000000000.x"]);
        assert!(many[0].ends_with("missing: 1, 2, 3, 4, 5 and 999999999994 more"), "{many:?}");
    }

    #[test]
    fn other_names_say_no_count() {
        for key in [
            "a-of-2.x",
            "x/1-of-2.x",
            "ten-of-nine",
            "a-1-of-b.x",
            "a-9999999999999999999999-of-2.x",
        ] {
            assert_eq!(parse(key), None, "{key}");
        }
        assert_eq!(parse("a-of-b/c_007-of-9.x"), Some(("a-of-b/c", 7, 9)));
    }
}
