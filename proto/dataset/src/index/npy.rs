//! Files of numpy's npy format, and the rule by which several of them make up one dataset. A file
//! is a magic string, a Python dictionary with dtype, order and shape, then one array.
//!
//! The parser of the dictionary accepts only the forms that numpy writes for plain arrays. A
//! general parser would have to bound recursion and check products of dimensions, which is more
//! code than this.

use std::collections::{BTreeMap, HashSet};

use larder_base::limits;

use super::{
    LeftOut, LeftOuts, Progress,
    group::{Candidate, FoundTensor},
    headers::{FileFault, Format, read_all},
    ragged, shown,
};
use crate::{DatasetError, Dtype, ObjectInfo, Origin, OriginUri};

/// Largest npy header, in bytes: numpy itself refuses more than 10,000 characters by default.
const NPY_HEADER_BYTES_MAX: u64 = 64 << 10;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    /// Offset of the data in the file.
    pub(super) offset: u64,
    /// Bytes of data: all the rest of the file.
    pub(super) bytes: u64,
    /// The first dimension changes fastest, so rows do not lie together.
    is_fortran: bool,
}

/// Reads the headers of npy files. Leaves out the arrays whose rows do not lie together.
pub(super) async fn arrays(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<(ObjectInfo, Array)>, DatasetError> {
    let mut arrays = read_all(origin, uri, files, &Npy, left_out, progress).await?;
    arrays.retain(|(file, array)| {
        if array.is_fortran {
            let why = "is in Fortran order, so its rows do not lie together: save \
                       np.ascontiguousarray(array)";
            left_out.push(LeftOut::object(&file.key, why));
        }
        !array.is_fortran
    });
    Ok(arrays)
}

/// Reads the headers of npy files and groups the files that hold the same samples.
pub(super) async fn candidates(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<Candidate>, DatasetError> {
    let headers = arrays(origin, uri, files, left_out, progress).await?;
    let places: HashSet<FileKey> = headers.iter().map(|(file, _)| FileKey::of(&file.key)).collect();
    let mut arrays = Vec::with_capacity(headers.len());
    for (file, array) in headers {
        let place = FileKey::of(&file.key);
        let there = |tensor: &str| places.contains(&place.with(tensor));
        match array.shape.split_first() {
            None if ragged::is_offsets(&place.tensor, there) => {
                return Err(FileFault::new("shape", "is that of a scalar").of(uri.join(&file.key)?));
            }
            None => left_out
                .push(LeftOut::object(&file.key, "is a scalar: it has no leading dimension")),
            Some(_) if array.bytes == 0 && !ragged::is_of_pair(&place.tensor, there) => {
                left_out.push(LeftOut::object(&file.key, "holds no samples"));
            }
            Some((rows, shape)) => {
                arrays.push((place, file, *rows, shape.to_vec(), array.clone()));
            }
        }
    }
    unnumber_mixed(&mut arrays);
    let mut groups: BTreeMap<GroupKey, Candidate> = BTreeMap::new();
    arrays.sort_by(|a, b| (&a.0.tensor, &a.1.key).cmp(&(&b.0.tensor, &b.1.key)));
    for (place, file, rows, shape, array) in arrays {
        let key = (place.folder, place.number, place.suffix);
        let group = groups
            .entry(key)
            .or_insert_with(|| Candidate { files: Vec::new(), tensors: Vec::new() });
        if group.tensors.iter().any(|tensor| tensor.name == place.tensor) {
            let why =
                format!("is a second file for '{}' of the same samples", shown(&place.tensor));
            return Err(FileFault::new("name", why).of(uri.join(&file.key)?));
        }
        group.tensors.push(FoundTensor {
            name: place.tensor,
            dtype: array.dtype,
            shape,
            rows,
            file: group.files.len(),
            offset: array.offset,
            bytes: array.bytes,
            spans: None,
        });
        group.files.push(file);
    }
    Ok(groups.into_values().collect())
}

/// Groups are ordered by folder, then by number, then by the spelling of the number.
type GroupKey = (String, u128, String);
type Placed = (FileKey, ObjectInfo, u64, Vec<u64>, Array);

/// The place of a file in the dataset, derived from its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileKey {
    folder: String,
    tensor: String,
    number: u128,
    suffix: String,
}

impl FileKey {
    /// Derives the place from a key. `train/image-007.npy` is number 7 of the tensor `image` in the
    /// folder `train`; `image/007.npy` is number 7 of the tensor `image` in the folder above.
    /// `text-007.offsets.npy`, and `text.offsets-007.npy` too, is number 7 of `text.offsets`.
    fn of(key: &str) -> Self {
        let stem = key.strip_suffix(".npy").unwrap_or(key);
        match stem.strip_suffix(ragged::SUFFIX).map(Self::of_stem) {
            Some(place) => place.with(&format!("{}{}", place.tensor, ragged::SUFFIX)),
            None => Self::of_stem(stem),
        }
    }

    fn of_stem(stem: &str) -> Self {
        let (folder, stem) = stem.rsplit_once('/').unwrap_or(("", stem));
        let counted = |c: char| c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
        let digits = stem.trim_end_matches(counted);
        let suffix = &stem[digits.len()..];
        if !suffix.contains(|c: char| c.is_ascii_digit()) {
            return Self::unnumbered(folder, stem);
        }
        let number = suffix.chars().filter(char::is_ascii_digit).take(30);
        let number = number.collect::<String>().parse().unwrap_or(u128::MAX);
        let (folder, tensor) = match digits {
            "" => folder.rsplit_once('/').unwrap_or(("", folder)),
            named => (folder, named),
        };
        let tensor = if tensor.is_empty() { "data" } else { tensor };
        Self { folder: folder.into(), tensor: tensor.into(), number, suffix: suffix.into() }
    }

    /// Returns the place of another tensor of the same samples.
    fn with(&self, tensor: &str) -> Self {
        Self { tensor: tensor.into(), ..self.clone() }
    }

    fn unnumbered(folder: &str, stem: &str) -> Self {
        Self { folder: folder.into(), tensor: stem.into(), number: 0, suffix: String::new() }
    }
}

/// Makes files separate tensors if they differ in a trailing number and also in dtype or shape:
/// `feature1` with 10 columns and `feature2` with 20. Offsets follow the tensor they divide,
/// whatever their own type is.
fn unnumber_mixed(arrays: &mut [Placed]) {
    let places: HashSet<FileKey> = arrays.iter().map(|(place, ..)| place.clone()).collect();
    let is_offsets = |place: &FileKey| {
        ragged::is_offsets(&place.tensor, |tensor| places.contains(&place.with(tensor)))
    };
    let mut kinds: BTreeMap<(String, String), (Dtype, Vec<u64>, bool)> = BTreeMap::new();
    for (place, _, _, shape, array) in arrays.iter().filter(|(place, ..)| !is_offsets(place)) {
        let name = (place.folder.clone(), place.tensor.clone());
        let kind = kinds.entry(name).or_insert_with(|| (array.dtype, shape.clone(), false));
        kind.2 |= kind.0 != array.dtype || kind.1 != *shape;
    }
    for (place, file, ..) in arrays {
        let of = is_offsets(place).then(|| place.tensor.strip_suffix(ragged::SUFFIX)).flatten();
        let tensor = of.unwrap_or(&place.tensor);
        let name = (place.folder.clone(), tensor.to_owned());
        if kinds.get(&name).is_some_and(|kind| kind.2) {
            let stem = file.key.strip_suffix(".npy").unwrap_or(&file.key);
            let (folder, stem) = stem.rsplit_once('/').unwrap_or(("", stem));
            *place = match of {
                Some(of) if !stem.ends_with(ragged::SUFFIX) => {
                    let tensor = format!("{of}{}{}", place.suffix, ragged::SUFFIX);
                    FileKey::unnumbered(folder, &tensor)
                }
                _ => FileKey::unnumbered(folder, stem),
            };
        }
    }
}

pub(super) struct Npy;

impl Format for Npy {
    type Header = Array;

    fn header_bytes(&self, begin: &[u8], size_bytes: u64) -> Result<u64, FileFault> {
        let (length, before) = match begin {
            [0x93, b'N', b'U', b'M', b'P', b'Y', 1, 0, a, b, ..] => {
                (u64::from(u16::from_le_bytes([*a, *b])), 10)
            }
            [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, 0, a, b, c, d, ..] => {
                (u64::from(u32::from_le_bytes([*a, *b, *c, *d])), 12)
            }
            [magic @ .., _, _, _, _] if magic.starts_with(MAGIC) => {
                let why = format!("{}.{} is not one of 1.0, 2.0 and 3.0", begin[6], begin[7]);
                return Err(FileFault::new("version", why));
            }
            _ => return Err(FileFault::new("magic", "this is not an npy file")),
        };
        let limit = NPY_HEADER_BYTES_MAX;
        if length > limit {
            let why = format!("{length} bytes where at most {limit} are read");
            return Err(FileFault::new("header length", why));
        }
        if before + length > size_bytes {
            let why = format!("{length} bytes, past the end of a file of {size_bytes}");
            return Err(FileFault::new("header length", why));
        }
        Ok(before + length)
    }

    fn parse(&self, bytes: &[u8], size_bytes: u64) -> Result<Array, FileFault> {
        let text_at = if bytes[6] == 1 { 10 } else { 12 };
        let text = std::str::from_utf8(&bytes[text_at..])
            .map_err(|error| FileFault::new("header", format!("not UTF-8: {error}")))?;
        let dictionary = Literal(text).dictionary()?;
        let dtype = read_dtype(&dictionary.descr)?;
        let shape = dictionary.shape;
        let lines = shape.iter().filter(|&&length| length > 1).count();
        let is_fortran = dictionary.fortran_order && lines > 1;
        let expected = shape
            .iter()
            .try_fold(dtype.size_bytes(), |bytes, dim| bytes.checked_mul(*dim))
            .ok_or_else(|| FileFault::new("shape", format!("{shape:?} overflows")))?;
        let offset = bytes.len() as u64;
        let found = size_bytes - offset;
        if found != expected {
            let kind =
                if found < expected { "it was cut off" } else { "there is more after the array" };
            let why = format!(
                "{shape:?} of {dtype} needs {expected} bytes, the file has {found}: {kind}"
            );
            return Err(FileFault::new("shape", why));
        }
        Ok(Array { dtype, shape, offset, bytes: expected, is_fortran })
    }
}

fn read_dtype(descr: &str) -> Result<Dtype, FileFault> {
    if descr.starts_with('>') {
        let why = format!("'{}' is big-endian: save it as little-endian", shown(descr));
        return Err(FileFault::new("descr", why));
    }
    let known = if descr.starts_with(['<', '|']) { Dtype::from_numpy(descr) } else { None };
    known.ok_or_else(|| FileFault::new("descr", format!("'{}' is not a known type", shown(descr))))
}

struct Dictionary {
    descr: String,
    fortran_order: bool,
    shape: Vec<u64>,
}

/// Blanks between the words of a header. A newline comes only at its end.
const BLANKS: [char; 2] = [' ', '\t'];

/// The unread rest of a Python literal.
struct Literal<'a>(&'a str);

impl Literal<'_> {
    fn dictionary(mut self) -> Result<Dictionary, FileFault> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.accept('}') {
            let key = self.string()?;
            self.expect(':')?;
            let again = match key.as_str() {
                "descr" => descr.replace(self.descr()?).is_some(),
                "fortran_order" => order.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.shape()?).is_some(),
                other => {
                    return Err(FileFault::new(
                        "header",
                        format!("unknown key '{}'", shown(other)),
                    ));
                }
            };
            if again {
                return Err(FileFault::new("header", format!("'{key}' is there twice")));
            }
            if !self.accept(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.0.trim_end_matches('\n').trim_start_matches(BLANKS).is_empty() {
            return Err(FileFault::new("header", "there is more after the dictionary"));
        }
        let missing = |field: &str| FileFault::new(field, "is missing");
        Ok(Dictionary {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran_order: order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn accept(&mut self, c: char) -> bool {
        self.0 = self.0.trim_start_matches(BLANKS);
        let rest = self.0.strip_prefix(c);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, c: char) -> Result<(), FileFault> {
        if self.accept(c) {
            return Ok(());
        }
        let found: String = self.0.chars().take(20).collect();
        Err(FileFault::new("header", format!("expected '{c}' before '{}'", shown(&found))))
    }

    fn string(&mut self) -> Result<String, FileFault> {
        let quote = if self.accept('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect('\'')?;
        }
        let (text, rest) = self
            .0
            .split_once(quote)
            .ok_or_else(|| FileFault::new("header", "a string does not end"))?;
        self.0 = rest;
        Ok(text.into())
    }

    fn descr(&mut self) -> Result<String, FileFault> {
        if self.0.trim_start_matches(BLANKS).starts_with('[') {
            return Err(FileFault::new(
                "descr",
                "is a record of several fields: save them one by one",
            ));
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool, FileFault> {
        self.0 = self.0.trim_start_matches(BLANKS);
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.0.strip_prefix(word) {
                self.0 = rest;
                return Ok(value);
            }
        }
        Err(FileFault::new("fortran_order", "is neither True nor False"))
    }

    fn shape(&mut self) -> Result<Vec<u64>, FileFault> {
        let mut shape = Vec::new();
        self.expect('(')?;
        while !self.accept(')') {
            if shape.len() == limits::DIMENSIONS_MAX as usize {
                let why = format!("has more than {} dimensions", limits::DIMENSIONS_MAX);
                return Err(FileFault::new("shape", why));
            }
            shape.push(self.dimension()?);
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn dimension(&mut self) -> Result<u64, FileFault> {
        self.0 = self.0.trim_start_matches(BLANKS);
        let digits = self.0.len() - self.0.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest.strip_prefix('L').unwrap_or(rest);
        let why = || {
            format!("'{}' is not a dimension", shown(&number.chars().take(30).collect::<String>()))
        };
        number.parse().map_err(|_| FileFault::new("shape", why()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_gives_folder_tensor_and_number() {
        let place = |key| {
            let p = FileKey::of(key);
            (p.folder, p.tensor, p.number, p.suffix)
        };
        let expected = |f: &str, t: &str, n, s: &str| (f.to_owned(), t.to_owned(), n, s.to_owned());
        assert_eq!(place("image.npy"), expected("", "image", 0, ""));
        assert_eq!(place("train/image-007.npy"), expected("train", "image", 7, "-007"));
        assert_eq!(place("image/12.npy"), expected("", "image", 12, "12"));
        assert_eq!(place("a/image/0.npy"), expected("a", "image", 0, "0"));
        assert_eq!(place("3.npy"), expected("", "data", 3, "3"));
        assert_eq!(place("x_.npy"), expected("", "x_", 0, ""));
        for offsets in ["a/text-07.offsets.npy", "a/text.offsets-07.npy"] {
            assert_eq!(place(offsets), expected("a", "text.offsets", 7, "-07"));
        }
        assert_eq!(place("a/text/07.offsets.npy"), expected("a", "text.offsets", 7, "07"));
        assert_eq!(place("text.offsets.npy"), expected("", "text.offsets", 0, ""));
    }
}
