//! Decides which objects of a listing are data: one pure step, without a read.
//!
//! It looks at names and sizes alone, and gives each object a verdict:
//!
//! 1. Larder's own objects count for nothing.
//! 2. Keys that can't be addressed, keys that no pattern of the user takes, leftovers of other
//!    programs (`rules`) and empty objects are left out, each with a reason.
//! 3. Of the rest, the format with the most bytes is the dataset, unless the user names one. Files
//!    of that format are *data*. Files that describe data, such as an `index.json`, are *notes*.
//! 4. Tables with a log that says which files count, and the weights of a model, are refused.
//!
//! Thread rule: plain values. Non-goals: the contents of files; files that a note names
//! (`formats`).

mod braces;
mod include;
mod listed;
mod refusals;
mod rules;
mod warnings;

use super::{
    INDEX_OF_TARS, IndexOptions, LeftOut, LeftOuts, extension,
    formats::{Format, format_of, most_bytes, note_format},
    unknown_kind,
};
use crate::{DatasetError, ObjectInfo, OriginUri, origin::Listing};
pub(super) use include::Include;
pub use listed::{ListedFiles, Verdict, verdicts};
pub use warnings::index_warnings;

/// The verdicts on a listing, in the order of the keys.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// The format of the data.
    pub(super) format: Format,
    /// The files that hold samples.
    pub(super) data: Vec<ObjectInfo>,
    /// The files that say more about them.
    pub(super) notes: Vec<ObjectInfo>,
    /// The other objects, each with the reason.
    pub(super) left_out: LeftOuts,
}

/// Decides on a listing of the objects under `uri`.
///
/// # Errors
/// There is no object, or none that the user's pattern takes. The objects are those of a table
/// format or the weights of a model.
pub(super) fn select(
    uri: &OriginUri,
    listing: Listing,
    options: &IndexOptions,
    include: Option<&Include>,
) -> Result<Selection, DatasetError> {
    let Listing { objects, unreadable } = listing;
    let nothing = |why| Err(DatasetError::NothingToIndex { prefix: uri.clone(), why });
    if let Some(include) = include {
        let missing = include.missing(objects.iter().map(|object| &*object.key));
        if let [first, more @ ..] = &missing[..] {
            let others =
                if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            return nothing(format!("there is no object '{first}'{others}, which is named"));
        }
    } else {
        refusals::check_table(uri, &objects)?;
    }
    let is_listed = |object: &&ObjectInfo| !is_of_larder(&object.key);
    // Only the error about the patterns says it.
    let listed = include.map_or(0, |_| objects.iter().filter(is_listed).count());
    let mut selection = Selection::default();
    let unreadable = unreadable.iter().map(|key| LeftOut::object(key, NO_ADDRESS));
    selection.left_out.extend(unreadable);
    let files = selection.take_files(uri, objects, include);
    if let (Some(include), true) = (include, files.is_empty()) {
        return nothing(format!("none of {listed} objects matches {include}"));
    }
    selection.format = format(&files, options)?;
    if selection.format == Format::Tensors && options.tokens.is_none() && include.is_none() {
        refusals::check_weights(uri, &files)?;
    }
    selection.take_format(files, options);
    Ok(selection)
}

/// The reason to leave out an object that no request can name.
const NO_ADDRESS: &str = "has a name that can't be part of an address: an empty or '.' segment, a \
                          control character, or bytes that are not UTF-8";

impl Selection {
    /// Leaves out what is no data by its name or size. Returns the other files.
    fn take_files(
        &mut self,
        uri: &OriginUri,
        objects: Vec<ObjectInfo>,
        include: Option<&Include>,
    ) -> Vec<ObjectInfo> {
        let mut files = objects;
        files.retain(|file| {
            let key = &*file.key;
            let spells = |mark: &str| include.is_some_and(|include| include.spells(key, mark));
            let why = match include {
                _ if is_of_larder(key) => return false,
                Some(include) if !include.takes(key) => return false,
                _ if uri.check_relative(key).is_err() => Some(NO_ADDRESS),
                _ => rules::why_no_data(key, spells),
            };
            let why = why.or((file.size_bytes == 0).then_some("is empty"));
            self.left_out.extend(why.map(|why| LeftOut::object(key, why)));
            why.is_none()
        });
        files
    }

    /// Divides files into data, notes, and those of other formats.
    fn take_format(&mut self, files: Vec<ObjectInfo>, options: &IndexOptions) {
        let format = self.format;
        let tensors = match format {
            Format::Tensors => tensor_kinds(&files, options),
            _ => &[],
        };
        let is_data = |key: &str| match format {
            Format::Tensors => tensors.contains(&extension(key)),
            _ if options.file_samples => extension(key) == "npy",
            _ => format_of(key) == Some(format),
        };
        let mut data = files;
        // Most files are data, and stay where they are.
        let others: Vec<_> = data.extract_if(.., |file| !is_data(&file.key)).collect();
        // Without data there is nothing that notes could describe.
        let is_note =
            |file: &ObjectInfo| !data.is_empty() && note_format(&file.key) == Some(format);
        let (notes, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_note);
        (self.data, self.notes) = (data, notes);
        for file in others {
            let why = self.why_other(&file.key, options);
            self.left_out.push(LeftOut::object(&file.key, why));
        }
    }

    /// Returns the reason to leave out a file that is neither data nor a note.
    fn why_other(&self, key: &str, options: &IndexOptions) -> String {
        let format = self.format;
        match (format_of(key), extension(key)) {
            _ if options.tokens.is_some() => "is neither a .bin nor a .npy file".to_owned(),
            (None, "idx") if format == Format::WebDataset => INDEX_OF_TARS.to_owned(),
            (None, _) => unknown_kind(key),
            _ if options.file_samples => "is no .npy file".to_owned(),
            (Some(Format::Tensors), "bin") => {
                "is a stream of tokens only if dtype, window and stride are given".to_owned()
            }
            (Some(Format::Tensors), kind) if format == Format::Tensors => {
                let other = if kind == "npy" { "safetensors" } else { "npy" };
                format!("lies beside {other} files, which are the dataset")
            }
            _ if self.data.is_empty() => format!("is of another format than {format}"),
            _ => format!("lies beside {format} files, which are the dataset"),
        }
    }
}

/// Returns the format of the dataset: the wanted one, or the one with the most bytes.
fn format(files: &[ObjectInfo], options: &IndexOptions) -> Result<Format, DatasetError> {
    match options.format {
        _ if options.tokens.is_some() => Ok(Format::Tensors),
        Format::Auto | Format::Folder | Format::Tensors if options.file_samples => {
            Ok(Format::Folder)
        }
        other if options.file_samples => {
            let why = format!("it is for .npy files, and not for the format {other}");
            Err(DatasetError::Option { option: "sample", why })
        }
        Format::Auto => Ok(most_bytes(files)),
        format => Ok(format),
    }
}

/// Returns the extensions of the files with tensors: those of tokens, or of the kind that has more
/// bytes.
fn tensor_kinds(files: &[ObjectInfo], options: &IndexOptions) -> &'static [&'static str] {
    let bytes = |kind: &str| {
        let own = files.iter().filter(|file| extension(&file.key) == kind);
        own.fold(0u64, |sum, file| sum.saturating_add(file.size_bytes))
    };
    match options.tokens {
        Some(_) => &["bin", "npy"],
        None if bytes("safetensors") >= bytes("npy") => &["safetensors"],
        None => &["npy"],
    }
}

/// The folder of Larder's own objects.
const HOME: &str = ".larder";

/// Returns whether an object is Larder's own: a manifest, a tag or a table of checksums.
pub(super) fn is_of_larder(key: &str) -> bool {
    // Few keys have the name in them, and an index looks at millions.
    key.contains(HOME) && key.split('/').any(|segment| segment == HOME)
}

/// Returns whether an object may be data of a dataset that was indexed with this pattern, by its
/// name and size alone.
pub(super) fn may_be_data(file: &ObjectInfo, include: Option<&Include>) -> bool {
    let key = &*file.key;
    let spells = |mark: &str| include.is_some_and(|include| include.spells(key, mark));
    file.size_bytes > 0
        && !is_of_larder(key)
        && include.is_none_or(|include| include.takes(key))
        && rules::why_no_data(key, spells).is_none()
}
