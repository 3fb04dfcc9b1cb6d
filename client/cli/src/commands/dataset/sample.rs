//! `larder dataset sample`.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use larder_client::{
    Dataset, Tensor,
    admin::{Dtype, Manifest, OriginUri},
};
use serde::Serialize;

use super::{
    describe::shape,
    open::{open_at_origin, open_through_nodes, parse_reference},
};
use crate::{
    context::{Context, Nodes, ReadFrom},
    error::{Exit, Failure},
    output::{Page, Report, units},
};

/// Writes one tensor of a sample, or of several samples, to a .npy file.
///
/// Several samples are stacked: `3,17,5` gives an array whose first dimension is 3. With --key,
/// samples are named by the values of the column that `larder dataset index --key` was told.
///
/// It reads from the cluster of --cluster or LARDER_CLUSTER, else from the node of this host, if it
/// runs, else from the origin.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The dataset: URI, URI@TAG or URI@SNAPSHOT
    #[arg(value_name = "DATASET")]
    reference: String,

    /// The number of the sample, counted from 0; or several, with commas between them
    #[arg(value_name = "INDEX", value_delimiter = ',', required_unless_present = "key")]
    index: Vec<u64>,

    /// The key of the sample in place of its number; or several
    #[arg(long, value_name = "KEY", value_delimiter = ',', conflicts_with = "index")]
    key: Vec<String>,

    /// The tensor; needed if there are several
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,

    /// The file to write; '-' is standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Place of the manifest if not beside the data
    #[arg(long, value_name = "URI")]
    manifest: Option<String>,
}

#[derive(Debug, Serialize)]
struct SampleReport {
    snapshot: String,
    samples: Vec<u64>,
    tensor: String,
    dtype: String,
    shape: Vec<u64>,
    bytes: u64,
    out: String,
    read_from: ReadFrom,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    parse_reference(&arguments.reference)?;
    let manifest = arguments.manifest.as_deref().map(OriginUri::parse).transpose()?;
    let nodes = context.nodes()?;
    let dataset = match &nodes {
        Some(nodes) => {
            open_through_nodes(context, nodes, &arguments.reference, manifest.as_ref(), true)?
        }
        None => open_at_origin(context, &arguments.reference, manifest.as_ref())?,
    };
    let samples = find_samples(&dataset, arguments)?;
    let tensor = &dataset.tensors()[find_tensor(dataset.manifest(), arguments)?];
    let (shape, bytes) = match samples[..] {
        [sample] => {
            let bytes = dataset.read(sample, tensor.name())?;
            (tensor.row_shape(bytes.len() as u64), bytes)
        }
        _ => read_stacked(&dataset, &samples, tensor)?,
    };
    let written = write_npy(&arguments.out, tensor.dtype(), &shape, &bytes);
    written.map_err(|error| Failure::file("write", &arguments.out, &error))?;
    if arguments.out.as_os_str() == "-" {
        return Ok(());
    }
    context.output.print(&SampleReport {
        snapshot: dataset.snapshot().to_string(),
        samples,
        tensor: tensor.name().to_owned(),
        dtype: tensor.dtype().to_string(),
        shape,
        bytes: bytes.len() as u64,
        out: arguments.out.display().to_string(),
        read_from: nodes.as_ref().map_or(ReadFrom::Origin, Nodes::read_from),
    })
}

/// The rows of several samples, one after the other, and their shape.
fn read_stacked(
    dataset: &Dataset,
    samples: &[u64],
    tensor: &Tensor,
) -> Result<(Vec<u64>, Vec<u8>), Failure> {
    let name = tensor.name();
    if tensor.is_ragged() {
        let what = format!("the rows of '{name}' differ in length");
        return Err(Failure::new(Exit::Usage, what)
            .why("an array has rows of one length")
            .hint("write one sample at a time"));
    }
    let indices: Vec<i64> = samples.iter().map(|sample| sample.cast_signed()).collect();
    let take = dataset.take(&indices, Some(&[name.to_owned()]))?;
    let mut bytes = vec![0; take.bytes().iter().sum()];
    take.into(&mut [&mut bytes])?;
    let shape = [samples.len() as u64].into_iter().chain(tensor.shape().iter().copied());
    Ok((shape.collect(), bytes))
}

/// The numbers of the wanted samples. Fails if one does not exist.
fn find_samples(dataset: &Dataset, arguments: &Arguments) -> Result<Vec<u64>, Failure> {
    if !arguments.key.is_empty() {
        let keys = dataset.read_keys(arguments.key.iter().map(String::as_str))?;
        let found = dataset.find(keys.iter().copied())?;
        return match dataset.missing(keys, &found) {
            Some(missing) => Err(missing.into()),
            None => Ok(found.into_iter().flatten().collect()),
        };
    }
    let samples = dataset.samples();
    if let Some(index) = arguments.index.iter().find(|&&index| index >= samples) {
        let last = samples.saturating_sub(1);
        return Err(Failure::new(Exit::NotFound, format!("there is no sample {index}"))
            .why(format!("the dataset has {}, 0 to {last}", units::counted(samples, "sample"))));
    }
    Ok(arguments.index.clone())
}

/// The number of the wanted tensor.
fn find_tensor(manifest: &Manifest, arguments: &Arguments) -> Result<usize, Failure> {
    let names = || {
        let names = manifest.tensors().iter().map(Tensor::name);
        names.collect::<Vec<_>>().join(", ")
    };
    match &arguments.tensor {
        None if manifest.tensors().len() == 1 => Ok(0),
        None => Err(Failure::new(Exit::Usage, "the dataset has several tensors")
            .hint(format!("choose one with --tensor: {}", names()))),
        Some(name) => manifest.tensor_index(name).ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no tensor '{name}'"))
                .hint(format!("it has: {}", names()))
        }),
    }
}

impl Report for SampleReport {
    fn show(&self, page: &mut Page) {
        let samples = match self.samples[..] {
            [sample] => format!("sample {}", units::count(sample)),
            _ => units::counted(self.samples.len() as u64, "sample"),
        };
        page.line(&format!(
            "wrote {}: {samples} of tensor '{}', {} ({}), {}, read from {}",
            self.out,
            self.tensor,
            self.dtype,
            shape(&self.shape.iter().copied().map(Some).collect::<Vec<_>>()),
            units::bytes(self.bytes),
            self.read_from,
        ));
    }
}

/// The header of a .npy file (format 1.0) of a little-endian array in C order.
fn npy_header(dtype: Dtype, shape: &[u64]) -> Vec<u8> {
    let sizes: String = shape.iter().map(|size| format!("{size}, ")).collect();
    // Python writes `(3,)` for one dimension and `(3, 4)` for two.
    let sizes = if shape.len() == 1 { sizes.trim_end() } else { sizes.trim_end_matches(", ") };
    let descr = dtype.numpy_descr();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    // Magic, version and length take 10 bytes; the data begins at a multiple of 64.
    let end = (10 + text.len() + 1).next_multiple_of(64);
    text.extend(std::iter::repeat_n(' ', end - 10 - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("64 dimensions fit");
    [b"\x93NUMPY\x01\x00", length.to_le_bytes().as_slice(), text.as_bytes()].concat()
}

/// Writes the array to a file, a pipe or a device; `-` is standard output.
fn write_npy(path: &Path, dtype: Dtype, shape: &[u64], bytes: &[u8]) -> io::Result<()> {
    let array = [npy_header(dtype, shape).as_slice(), bytes].concat();
    if path == Path::new("-") {
        let mut out = io::stdout().lock();
        return out.write_all(&array).and_then(|()| out.flush());
    }
    fs::write(path, array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_equals_that_of_numpy() {
        let bytes = npy_header(Dtype::F32, &[2, 3]);
        assert_eq!(bytes.len() % 64, 0);
        let text = String::from_utf8_lossy(&bytes[10..]);
        assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  "));
        assert!(text.ends_with(" \n"));
        assert!(String::from_utf8_lossy(&npy_header(Dtype::I64, &[])).contains("'shape': (), "));
        assert!(String::from_utf8_lossy(&npy_header(Dtype::I64, &[7])).contains("'shape': (7,), "));
    }

    #[test]
    fn a_file_replaces_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write_npy(&path, Dtype::U8, &[3], b"abc").unwrap();
        write_npy(&path, Dtype::U8, &[2], b"xy").unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"\x93NUMPY\x01\x00") && bytes.ends_with(b"\nxy"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
