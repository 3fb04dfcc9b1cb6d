//! `larder dataset sample`.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use larder_client::{
    Tensor,
    admin::{Dtype, Manifest, OriginUri},
};
use serde::Serialize;

use super::{
    describe::shape,
    open::{open, open_through_nodes, parse_reference, read_exact},
};
use crate::{
    context::{Context, ReadFrom},
    error::{Exit, Failure},
    output::{Page, Report, units},
};

/// Writes one tensor of one sample to a .npy file.
///
/// It reads from the cluster of --cluster or LARDER_CLUSTER, else from the node of this host, if it
/// runs, else from the origin.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The dataset: URI, URI@TAG or URI@SNAPSHOT
    #[arg(value_name = "DATASET")]
    reference: String,

    /// The number of the sample, counted from 0
    index: u64,

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
    sample: u64,
    tensor: String,
    dtype: String,
    shape: Vec<u64>,
    bytes: u64,
    out: String,
    read_from: ReadFrom,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let reference = parse_reference(&arguments.reference)?;
    let manifest_uri = arguments.manifest.as_deref().map(OriginUri::parse).transpose()?;
    let (manifest, tensor, bytes, read_from) = match context.nodes()? {
        Some(nodes) => {
            let dataset = open_through_nodes(
                context,
                &nodes,
                &arguments.reference,
                manifest_uri.as_ref(),
                true,
            )?;
            let tensor = find(dataset.manifest(), arguments)?;
            let name = dataset.manifest().tensors()[tensor].name().to_owned();
            let bytes = dataset.read(arguments.index, &name)?;
            (dataset.manifest().clone(), tensor, bytes, nodes.read_from())
        }
        None => {
            let (origin, opened) = open(context, &reference, manifest_uri.as_ref())?;
            let manifest = opened.manifest;
            let tensor = find(&manifest, arguments)?;
            let (shard, row) = manifest.locate(arguments.index).expect("found above");
            let part = manifest.row_read(shard, row, tensor);
            let bytes = context.block_on(read_exact(&origin, &manifest, &part))??;
            (manifest, tensor, bytes, ReadFrom::Origin)
        }
    };
    let facts = &manifest.tensors()[tensor];
    let row_shape = facts.row_shape(bytes.len() as u64);
    let written = write_npy(&arguments.out, facts.dtype(), &row_shape, &bytes);
    written.map_err(|error| Failure::file("write", &arguments.out, &error))?;
    if arguments.out.as_os_str() == "-" {
        return Ok(());
    }
    context.output.print(&SampleReport {
        snapshot: manifest.snapshot().to_string(),
        sample: arguments.index,
        tensor: facts.name().to_owned(),
        dtype: facts.dtype().to_string(),
        shape: row_shape,
        bytes: bytes.len() as u64,
        out: arguments.out.display().to_string(),
        read_from,
    })
}

/// The number of the wanted tensor. Fails if there is no such sample.
fn find(manifest: &Manifest, arguments: &Arguments) -> Result<usize, Failure> {
    let samples = manifest.samples();
    if arguments.index >= samples {
        let what = format!("there is no sample {}", arguments.index);
        let last = samples.saturating_sub(1);
        return Err(Failure::new(Exit::NotFound, what)
            .why(format!("the dataset has {}, 0 to {last}", units::counted(samples, "sample"))));
    }
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
        page.line(&format!(
            "wrote {}: sample {} of tensor '{}', {} ({}), {}, read from {}",
            self.out,
            units::count(self.sample),
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
