//! Braces in names, as shells and webdataset expand them: `{000..146}.tar` stands for 147 names,
//! `{train,val}/*.jpg` for two.
//!
//! Non-goals: braces within braces.

/// Most names that the braces of one `--include` or address stand for: a shard each of a petabyte.
const INCLUDED_NAMES_MAX: usize = 1_000_000;

/// Expands the braces of all texts, in order.
///
/// # Errors
/// A brace is not closed or not understood, or the texts stand for too many names.
pub(super) fn expand_all(texts: &[String]) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for text in texts {
        expand(text, &mut all)?;
    }
    Ok(all)
}

fn expand(text: &str, all: &mut Vec<String>) -> Result<(), String> {
    let mut names = vec![String::new()];
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((inside, after)) = behind.split_once('}') else {
            return Err(format!("'{text}' has a brace that is not closed"));
        };
        let room = INCLUDED_NAMES_MAX.saturating_sub(all.len()) / names.len();
        let choices = choices(inside, room).map_err(|why| format!("'{text}' {why}"))?;
        let longer = |name: &String| {
            choices.iter().map(|choice| format!("{name}{before}{choice}")).collect::<Vec<_>>()
        };
        names = names.iter().flat_map(longer).collect();
        rest = after;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    all.append(&mut names);
    Ok(())
}

/// Returns the texts that the inside of a pair of braces stands for, at most `room`.
fn choices(inside: &str, room: usize) -> Result<Vec<String>, String> {
    let too_many = || format!("stands for more than {INCLUDED_NAMES_MAX} names: name a pattern");
    if let Some((first, last)) = inside.split_once("..") {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u64>().ok()).flatten()
        };
        let (Some(begin), Some(end)) = (number(first), number(last)) else {
            return Err(format!(
                "has '{{{inside}}}', which is no range of numbers like {{000..146}}"
            ));
        };
        if begin > end {
            return Err(format!("has '{{{inside}}}', whose numbers fall"));
        }
        if end - begin >= room as u64 {
            return Err(too_many());
        }
        let is_padded = [first, last].iter().any(|text| text.len() > 1 && text.starts_with('0'));
        let width = if is_padded { first.len().max(last.len()) } else { 0 };
        return Ok((begin..=end).map(|number| format!("{number:0width$}")).collect());
    }
    if !inside.contains(',') {
        return Err(format!("has '{{{inside}}}', which is no list like {{a,b}}"));
    }
    let choices: Vec<String> = inside.split(',').map(str::to_owned).collect();
    if choices.len() > room { Err(too_many()) } else { Ok(choices) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<String>, String> {
        expand_all(&[text.to_owned()])
    }

    #[test]
    fn ranges_keep_their_width_and_lists_their_order() {
        assert_eq!(names("{008..010}.tar").unwrap(), ["008.tar", "009.tar", "010.tar"]);
        assert_eq!(names("x{9..11}").unwrap(), ["x9", "x10", "x11"]);
        assert_eq!(names("{b,a}/{0..1}.x").unwrap(), ["b/0.x", "b/1.x", "a/0.x", "a/1.x"]);
        assert_eq!(names("plain[0-9]*.x").unwrap(), ["plain[0-9]*.x"]);
    }

    #[test]
    fn braces_that_stand_for_nothing_or_too_much_are_refused() {
        for (text, why) in [
            ("a{0..3", "not closed"),
            ("{x..z}", "no range of numbers"),
            ("{3..1}", "numbers fall"),
            ("{a}", "no list"),
            ("{0..99999999999}", "more than 1000000 names"),
            ("{0..999}{0..999}{0..9}", "more than 1000000 names"),
            ("{0..99999999999999999999999}", "no range of numbers"),
        ] {
            let found = names(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
