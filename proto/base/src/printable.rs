//! Makes text from outside safe for terminals and logs.

use std::borrow::Cow;

/// Begins a terminal's control sequence.
const ESCAPE: char = '\u{1b}';

/// Returns the text with its control characters written out (`\u{7}`), except line ends and
/// colours. Names come from files and messages from servers: neither may move a cursor, set a title
/// or ring a bell.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let taken = match colour(rest) {
            Some(sequence) => {
                plain.push_str(sequence);
                sequence.len()
            }
            None if is_active(character) => {
                plain.extend(character.escape_default());
                character.len_utf8()
            }
            None => {
                plain.push(character);
                character.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    Cow::Owned(plain)
}

/// As [`printable`], on one line: line ends are written out too, so that no text looks like another
/// line.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    let plain = printable(text);
    if plain.contains('\n') { Cow::Owned(plain.replace('\n', "\\n")) } else { plain }
}

fn is_active(character: char) -> bool {
    character.is_control() && character != '\n'
}

/// Returns the sequence at the beginning that sets a colour or weight, if there is one.
fn colour(text: &str) -> Option<&str> {
    let sequence = text.strip_prefix(ESCAPE)?.strip_prefix('[')?;
    let end = sequence.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
    let length = ESCAPE.len_utf8() + 1 + end + 1;
    sequence[end..].starts_with('m').then(|| &text[..length])
}

/// The longest head of `text` of at most `bytes_max` bytes that ends between two characters.
pub fn head(text: &str, bytes_max: u32) -> &str {
    &text[..text.floor_char_boundary(bytes_max as usize)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_out_terminal_control_sequences() {
        assert_eq!(printable("a\u{1b}]0;title\u{7}b"), "a\\u{1b}]0;title\\u{7}b");
        assert_eq!(printable("\u{1b}[2J\r\t\u{9b}1m"), "\\u{1b}[2J\\r\\t\\u{9b}1m");
        assert_eq!(printable("\u{1b}[31;1"), "\\u{1b}[31;1");
        assert_eq!(printable("\u{1b}"), "\\u{1b}");
    }

    #[test]
    fn printable_keeps_letters_colours_and_lines() {
        for text in ["größe 漢字 ✓", "\u{1b}[1;31merror\u{1b}[0m: a\nb", ""] {
            assert!(matches!(printable(text), Cow::Borrowed(_)) || text.contains(ESCAPE));
            assert_eq!(printable(text), text);
        }
        assert_eq!(printable_line("a\nb"), "a\\nb");
    }
}
