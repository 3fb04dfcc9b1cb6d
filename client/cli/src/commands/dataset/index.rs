//! `larder dataset index`.

use clap::{Args, ValueEnum};
use larder_client::{
    WritePolicy,
    admin::{
        self, Addressed, Bad, DatasetRef, Dtype, Format, IndexOptions, Indexed, LeftOut,
        ListedFiles, ManifestLocation, Missing, Origin, OriginUri, PlannedReads, Reporter,
        TokenSpec, Verdict, WindowSpec, parse_size,
    },
};
use serde::Serialize;

use super::{
    describe::{Description, show_left_out},
    open::parse_prefix,
};
use crate::{
    context::Context,
    error::{Exit, Failure},
    output::{Ink, Page, Report, TextTable, units},
    progress::above,
};

/// Indexes the files under a prefix in place and writes a small manifest beside them.
///
/// Indexing understands .safetensors and .npy, WebDataset tars, folders of pictures, sound and
/// video, MDS shards, Parquet, Arrow files and JSON lines. With --dtype, --window and --stride it
/// takes flat token files (.bin or one-dimensional .npy). It reads headers and offsets. Of tars
/// with members below 256 KiB and of JSON lines it reads all bytes: see --dry-run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The prefix: s3://bucket/prefix, gs://, az:// or file:///folder. Or files under one prefix,
    /// also with braces: s3://bucket/data/{000..146}.tar
    #[arg(required = true, value_name = "URI")]
    uris: Vec<String>,

    /// Tag that will point to the snapshot [default: latest; of files a tag of their names]
    #[arg(long)]
    tag: Option<String>,

    /// Print every object with the reason that it is data or is left out, and read nothing
    #[arg(long)]
    list: bool,

    /// Print how many files the index would read, and about how many of their bytes. Reads at most
    /// 1 MiB or so for that
    #[arg(long, conflicts_with = "list")]
    dry_run: bool,

    /// Wanted size of a shard: a shard is placed, filled and evicted as a whole
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    shard_bytes: u64,

    /// Take only files whose key under the prefix matches, such as 'train/*.tar' or '**/*.jpg'.
    /// May be given several times
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,

    /// Format of the files: auto, tensors, wds, folder, mds, parquet, arrow or jsonl. Auto is the
    /// one with the most bytes
    #[arg(long, default_value_t = Format::Auto, hide_default_value = true)]
    format: Format,

    /// What is a sample of .npy files: rows of the first dimension, or each file
    #[arg(long, value_enum, default_value_t = Sample::Rows, hide_default_value = true)]
    sample: Sample,

    /// Columns of the dataset, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Option<Vec<String>>,

    /// What happens to a sample that lacks a column: error, empty or skip [default: error]
    #[arg(long, default_value_t = Missing::Error, hide_default_value = true)]
    missing: Missing,

    /// What happens to a damaged file: error, or skip, which leaves it out [default: error]
    #[arg(long, default_value_t = Bad::Error, hide_default_value = true)]
    bad: Bad,

    /// Type of a token, such as uint16 or I32
    #[arg(long, value_parser = parse_dtype, requires = "window", help_heading = "Windows over tokens")]
    dtype: Option<Dtype>,

    /// Tokens in a sample
    #[arg(long, value_name = "TOKENS", help_heading = "Windows over tokens")]
    window: Option<u64>,

    /// Tokens from the start of one sample to the start of the next [default: the window]
    #[arg(long, value_name = "TOKENS", requires = "window", help_heading = "Windows over tokens")]
    stride: Option<u64>,

    /// Ragged column of integers: each sample is a window over its rows, read one after the other.
    /// Reads that column
    #[arg(long, value_name = "COLUMN", requires = "window", help_heading = "Windows over tokens")]
    column: Option<String>,

    /// Integer to put after each row of the column
    #[arg(
        long,
        value_name = "TOKEN",
        requires = "column",
        allow_negative_numbers = true,
        help_heading = "Windows over tokens"
    )]
    between: Option<i64>,

    /// Bytes before the first token of a .bin file [default: those of a header of llm.c, if it has
    /// one]
    #[arg(long, value_name = "BYTES", requires = "window", help_heading = "Windows over tokens")]
    offset: Option<u64>,

    /// Read all data once and pin a checksum of each shard: fills are then checked against it
    #[arg(long)]
    checksum: bool,

    /// Column by whose values samples can be found; each is unique. Reads that column
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,

    /// Place of manifest and tag instead of URI/.larder
    #[arg(long, value_name = "URI")]
    manifest: Option<String>,

    /// Whether to write under the prefix: auto, or never, which writes manifest and tag into this
    /// user's cache folder [default: LARDER_WRITE, else auto]
    #[arg(long, value_name = "POLICY", conflicts_with = "manifest")]
    write: Option<WritePolicy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sample {
    Rows,
    File,
}

const EXAMPLES: &str = "\
Examples:
  larder dataset index s3://bucket/imagenet
  larder dataset index s3://bucket/products --key id
  larder dataset index s3://bucket/data --include 'train/*.parquet' --tag train
  larder dataset index s3://bucket/wds/{000..146}.tar
  larder dataset index s3://bucket/wds --columns jpg,cls --missing skip
  larder dataset index s3://bucket/tokens --dtype uint16 --window 2049 --stride 2048
  larder dataset index s3://bucket/docs --column tokens --window 1025 --stride 1024
  larder dataset index s3://read-only/data --manifest s3://mine/manifests --tag v3";

fn parse_dtype(text: &str) -> Result<Dtype, String> {
    let dtype = Dtype::from_numpy(text);
    let dtype = dtype.or_else(|| Dtype::from_safetensors_name(&text.to_uppercase()));
    dtype.ok_or_else(|| {
        format!("'{text}' is no type; examples are uint16, int32, uint8, <u2, I64, BF16")
    })
}

#[derive(Debug, Serialize)]
struct IndexReport {
    #[serde(flatten)]
    description: Description,
    tag: String,
    uri: String,
    /// How samples are formed of the files.
    summary: String,
    /// Whether each shard's checksum is pinned.
    checksums: bool,
    /// The column of the keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    left_out: Vec<LeftOut>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let options = options(arguments)?;
    let (uri, options) = addressed(context, &arguments.uris, options)?;
    if arguments.list {
        return list(context, &uri, &options);
    }
    let progress = context.progress(&format!("listing {uri}"));
    let reporter = Reporter::new(progress.shows());
    let show = |step| reporter.report(step);
    let planned = context.block_on(async {
        let origin = Origin::connect(&uri).await?;
        let listed = Box::pin(ListedFiles::list(&origin, &uri, &options, &show)).await?;
        let planned = Box::pin(listed.planned_reads(&origin, &uri, &options)).await?;
        Ok::<_, Failure>((origin, listed, planned))
    })?;
    let (origin, listed, planned) = planned?;
    if arguments.dry_run {
        drop(progress);
        return context.output.print(&DryRun { uri: uri.to_string(), planned });
    }
    above(|| context.output.note(&in_words(&planned)));
    let indexed = context.block_on(async {
        let indexed = admin::index_listed(&origin, &uri, listed, &options, &show);
        Box::pin(indexed).await.map_err(Failure::from)
    })?;
    drop(progress);
    let indexed = indexed?;
    if let ManifestLocation::LocalCache { why, .. } = &indexed.location {
        let temporary = admin::warning_of_run_folder(&indexed.location.uri().to_string());
        let place = temporary.unwrap_or_else(|| {
            "the manifest is in this user's cache, which other hosts do not see".to_owned()
        });
        context
            .output
            .warn(&format!("{place}\nwhy: {why}\ngive a place all can read with --manifest URI"));
    }
    for warning in admin::index_warnings(&indexed.snapshot) {
        context.output.warn(&warning);
    }
    context.output.print(&report(&uri, &options, indexed))
}

/// Returns the prefix that addresses mean, and the options with the files that they name.
fn addressed(
    context: &Context,
    uris: &[String],
    options: IndexOptions,
) -> Result<(OriginUri, IndexOptions), Failure> {
    let meant = context.block_on(async { admin::resolve(uris).await.map_err(Failure::from) })?;
    let (uri, tag) = match meant? {
        Addressed::Prefix(_) => {
            (parse_prefix(&uris[0], "--tag")?, DatasetRef::TAG_DEFAULT.to_owned())
        }
        Addressed::Files(_) if !options.include.is_empty() => {
            let what = "files are named by their addresses, and by --include as well";
            return Err(Failure::new(Exit::Usage, what).hint("name them in one way"));
        }
        Addressed::Files(files) => {
            let tag = options.tag.clone().unwrap_or_else(|| files.tag());
            let options = IndexOptions { include: files.include, tag: Some(tag), ..options };
            return Ok((files.prefix, options));
        }
    };
    let tag = options.tag.clone().or(Some(tag));
    Ok((uri, IndexOptions { tag, ..options }))
}

/// The reads of an index that was not made.
#[derive(Debug, Serialize)]
struct DryRun {
    uri: String,
    #[serde(flatten)]
    planned: PlannedReads,
}

impl Report for DryRun {
    fn show(&self, page: &mut Page) {
        page.line(&format!("{}: {}", self.uri, in_words(&self.planned)));
    }
}

/// For example `reads about 40 MiB of 12 files with 110 MiB`.
fn in_words(planned: &PlannedReads) -> String {
    let PlannedReads { files, file_bytes, read_bytes } = *planned;
    let [read, all] = [read_bytes, file_bytes].map(units::bytes);
    format!("reads about {read} of {} with {all}", units::counted(files, "file"))
}

/// Prints the verdict on each object.
fn list(context: &Context, uri: &OriginUri, options: &IndexOptions) -> Result<(), Failure> {
    let progress = context.progress(&format!("listing {uri}"));
    let listed = context.block_on(async {
        let origin = Origin::connect(uri).await.map_err(Failure::from)?;
        admin::verdicts(&origin, uri, options).await.map_err(Failure::from)
    })?;
    drop(progress);
    context.output.print(&Listing { uri: uri.to_string(), objects: listed? })
}

/// The objects under a prefix, each with a verdict.
#[derive(Debug, Serialize)]
struct Listing {
    uri: String,
    objects: Vec<Verdict>,
}

impl Report for Listing {
    fn show(&self, page: &mut Page) {
        let mut table = TextTable::new("OBJECT | TAKEN | WHY");
        for verdict in &self.objects {
            let taken = if verdict.taken { "yes" } else { "no" };
            table.row([verdict.object.clone(), taken.to_owned(), verdict.why.clone()]);
        }
        page.table(&table);
        let taken = self.objects.iter().filter(|verdict| verdict.taken).count() as u64;
        let all = self.objects.len() as u64;
        page.line("");
        page.line(&format!("{} of {}", units::count(taken), units::counted(all, "object")));
    }
}

fn options(arguments: &Arguments) -> Result<IndexOptions, Failure> {
    let manifest = arguments.manifest.as_deref().map(OriginUri::parse).transpose()?;
    let tokens = arguments.dtype.zip(arguments.window).map(|(dtype, window)| TokenSpec {
        dtype,
        window,
        stride: arguments.stride.unwrap_or(window),
        offset: arguments.offset,
    });
    let windows = arguments.column.clone().zip(arguments.window);
    let windows = windows.map(|(column, window)| WindowSpec {
        column,
        window,
        stride: arguments.stride.unwrap_or(window),
        between: arguments.between,
    });
    if arguments.window.is_some() && tokens.is_none() && windows.is_none() {
        let failure = Failure::new(Exit::Usage, "--window needs --dtype or --column");
        return Err(failure.hint("--dtype is the type of flat files, --column has documents"));
    }
    Ok(IndexOptions {
        shard_bytes: arguments.shard_bytes,
        include: arguments.include.clone(),
        format: arguments.format,
        file_samples: arguments.sample == Sample::File,
        columns: arguments.columns.clone(),
        missing: arguments.missing,
        bad: arguments.bad,
        tokens,
        windows,
        checksum: arguments.checksum,
        manifest,
        write: arguments.write,
        tag: arguments.tag.clone(),
        key: arguments.key.clone(),
    })
}

fn report(uri: &OriginUri, options: &IndexOptions, indexed: Indexed) -> IndexReport {
    IndexReport {
        description: Description::new(&indexed.snapshot.manifest, &indexed.location),
        tag: options.tag.clone().unwrap_or_else(|| DatasetRef::TAG_DEFAULT.to_owned()),
        uri: uri.to_string(),
        summary: indexed.snapshot.summary(),
        checksums: options.checksum,
        key: options.key.clone(),
        left_out: indexed.left_out,
    }
}

impl Report for IndexReport {
    fn show(&self, page: &mut Page) {
        let name = format!("{}@{}", self.uri, self.tag);
        page.line(&format!("{} {name}", page.ink(Ink::Green, "indexed")));
        page.line(&self.summary);
        page.line("");
        let mut fields = self.description.fields();
        let pinned = if self.checksums { "pinned" } else { "not pinned (see --checksum)" };
        fields.push(("checksums", pinned.to_owned()));
        fields.extend(self.key.iter().map(|key| ("key", key.clone())));
        page.fields(&fields);
        page.line("");
        self.description.show_tensors(page);
        show_left_out(page, &self.left_out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_the_names_of_numpy_and_of_safetensors() {
        for name in ["uint16", "<u2", "u2", "U16"] {
            assert_eq!(parse_dtype(name), Ok(Dtype::U16), "{name}");
        }
        assert_eq!(parse_dtype("bf16"), Ok(Dtype::Bf16));
        assert!(parse_dtype("word").is_err());
    }
}
