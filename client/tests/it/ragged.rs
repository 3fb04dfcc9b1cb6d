//! Ragged tensors of a local folder, read by a Rust program. Every row comes from the origin.

use std::{fs, path::Path};

use larder_client::{
    Batch, CancelToken, Dataset, ErrorKind, Mixture, admin,
    sampler::{Last, Shuffle, Stop},
};
use safetensors::{Dtype, tensor::TensorView};
use tempfile::TempDir;

const ROWS: u16 = 60;

/// Two files of 60 samples: a text of pairs of `u16`, sometimes empty, and the number of the
/// sample.
fn folder(first: u16) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in 0..2 {
        let samples = || first + file * ROWS..first + (file + 1) * ROWS;
        write(&folder.path().join(format!("part-{file}.safetensors")), samples());
    }
    folder
}

fn write(path: &Path, samples: std::ops::Range<u16>) {
    let rows = samples.len();
    let text: Vec<u8> = samples.clone().flat_map(text).collect();
    let mut end = 0_i64;
    let ends = samples.clone().map(|sample| {
        end += i64::try_from(text_len(sample)).expect("small");
        end
    });
    let offsets: Vec<u8> = [0].into_iter().chain(ends).flat_map(i64::to_le_bytes).collect();
    let numbers: Vec<u8> = samples.flat_map(u16::to_le_bytes).collect();
    let tensors = [
        ("text", TensorView::new(Dtype::U16, vec![text.len() / 4, 2], &text).expect("a tensor")),
        ("text.offsets", TensorView::new(Dtype::I64, vec![rows + 1], &offsets).expect("a tensor")),
        ("number", TensorView::new(Dtype::U16, vec![rows], &numbers).expect("a tensor")),
    ];
    fs::write(path, safetensors::serialize(tensors, None).expect("a valid file")).expect("a file");
}

fn text_len(sample: u16) -> usize {
    if sample.is_multiple_of(5) { 0 } else { usize::from(sample.wrapping_mul(7919) % 900) }
}

fn text(sample: u16) -> Vec<u8> {
    (0..text_len(sample) * 4).map(|at| (at * 31 + usize::from(sample)).to_le_bytes()[0]).collect()
}

fn uri_of(folder: &TempDir) -> String {
    format!("file://{}", folder.path().display())
}

/// Indexes with row checksums, in small shards.
fn indexed(folder: &TempDir) -> Dataset {
    let uri = uri_of(folder);
    let options = admin::IndexOptions {
        checksum: true,
        shard_bytes: 20_000,
        ..admin::IndexOptions::default()
    };
    admin::index_prefix(std::slice::from_ref(&uri), &options, &|_| {}, &CancelToken::never())
        .expect("an index");
    Dataset::open(&uri, None).expect("a dataset")
}

/// Checks every byte of a batch. `first` has the number of each dataset's first sample.
fn check(batch: &Batch, first: &[u16]) {
    let (texts, numbers) = (batch.tensor("text"), batch.tensor("number"));
    let offsets = texts.offsets().expect("a ragged tensor");
    assert_eq!((offsets.len(), offsets[0]), (batch.len() + 1, 0));
    assert_eq!(texts.shape(), [offsets[batch.len()].unsigned_abs(), 2]);
    assert_eq!((texts.sample_shape(), texts.row_bytes()), (&[2][..], 0));
    assert!(numbers.offsets().is_none());
    for (row, &sample) in batch.samples().iter().enumerate() {
        let dataset = batch.datasets().map_or(0, |datasets| datasets[row] as usize);
        let number = first[dataset] + u16::try_from(sample).expect("small");
        assert_eq!(texts.row(row), text(number), "sample {sample}");
        assert_eq!(numbers.row(row), number.to_le_bytes());
        let elements = usize::try_from(offsets[row + 1] - offsets[row]).expect("rising");
        assert_eq!(elements, text_len(number));
        let begin = usize::try_from(offsets[row]).expect("rising") * 4;
        assert_eq!(&texts.bytes()[begin..begin + elements * 4], text(number));
    }
}

#[test]
fn epoch_has_every_row_of_any_length() {
    let folder = folder(0);
    for dataset in [Dataset::open(&uri_of(&folder), None).unwrap(), indexed(&folder)] {
        for (shuffle, rows) in [(Shuffle::Global, 13), (Shuffle::None, 16), (Shuffle::Global, 1)] {
            let builder = dataset.loader().batch_size(rows).shuffle(shuffle).last(Last::Uneven);
            let mut loader = builder.build().unwrap();
            let mut bytes = 0;
            for epoch in 0..2 {
                for batch in loader.epoch(epoch).unwrap() {
                    let batch = batch.unwrap();
                    check(&batch, &[0]);
                    bytes += batch.sources().bytes;
                }
                assert_eq!(loader.digest(), loader.expected_digest());
            }
            let texts: usize = (0..120).map(|sample| text_len(sample) * 4).sum();
            assert_eq!(bytes, 2 * (texts as u64 + 240));
        }
    }
}

#[test]
fn resume_in_mid_epoch_continues_with_the_same_rows() {
    let folder = folder(0);
    let dataset = indexed(&folder);
    let loader = || dataset.loader().batch_size(7).shuffle(Shuffle::Global).seed(3);
    let whole: Vec<Vec<u64>> = (loader().build().unwrap().epoch(0).unwrap())
        .map(|batch| batch.unwrap().samples().to_vec())
        .collect();
    let mut first = loader().build().unwrap();
    let taken = first.epoch(0).unwrap().take(4).last().unwrap().unwrap();
    let mut resumed = dataset.loader().batch_size(7).resume(taken.state()).build().unwrap();
    let rest: Vec<Vec<u64>> = (resumed.epoch(0).unwrap())
        .map(|batch| {
            let batch = batch.unwrap();
            check(&batch, &[0]);
            batch.samples().to_vec()
        })
        .collect();
    assert_eq!(rest, whole[4..]);
}

#[test]
fn samples_are_read_alone_and_together() {
    let folder = folder(0);
    let dataset = Dataset::open(&uri_of(&folder), None).unwrap();
    assert_eq!(dataset.read(7, "text").unwrap(), text(7));
    assert!(dataset.read(5, "text").unwrap().is_empty());
    assert_eq!(dataset.rows(50..70, "text").unwrap(), (50..70).flat_map(text).collect::<Vec<_>>());
    let taken = dataset.take(&[61, 5, 7, 61], None).unwrap().read().unwrap();
    let shapes: Vec<_> = taken.iter().map(|tensor| (&*tensor.name, tensor.shape.clone())).collect();
    let offsets: Vec<i64> = [61, 5, 7, 61]
        .iter()
        .scan(0, |end, &sample| {
            *end += i64::try_from(text_len(sample)).unwrap();
            Some(*end)
        })
        .collect();
    let elements = offsets[3].unsigned_abs();
    assert_eq!(shapes, [("number", vec![4]), ("text", vec![elements, 2])]);
    assert!(taken[0].offsets.is_none());
    assert_eq!(taken[1].offsets.as_deref(), Some(&[&[0], &offsets[..]].concat()[..]));
    assert_eq!(taken[1].memory.len() as u64, elements * 4);
    assert_eq!(dataset.rows(3..121, "text").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn ragged_datasets_mix_only_with_ragged_datasets() {
    let (one, two) = (folder(0), folder(1000));
    let [one, two] = [&one, &two].map(|folder| Dataset::open(&uri_of(folder), None).unwrap());
    let mixture = Mixture::new([(one.clone(), 0.6), (two, 0.4)], 1, Stop::First).unwrap();
    let mut loader = mixture.loader().batch_size(11).last(Last::Uneven).build().unwrap();
    let mut rows = 0;
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        check(&batch, &[0, 1000]);
        rows += batch.len();
    }
    assert!(rows > 120);

    let even = tempfile::tempdir().unwrap();
    let tensors = [
        ("text", TensorView::new(Dtype::U16, vec![3, 2], &[1; 12]).unwrap()),
        ("number", TensorView::new(Dtype::U16, vec![3], &[2; 6]).unwrap()),
    ];
    let bytes = safetensors::serialize(tensors, None).unwrap();
    fs::write(even.path().join("a.safetensors"), bytes).unwrap();
    let even = Dataset::open(&uri_of(&even), None).unwrap();
    let mixture = Mixture::new([(one, 0.5), (even, 0.5)], 1, Stop::First).unwrap();
    let mut loader = mixture.loader().batch_size(2).build().unwrap();
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
    let names: Vec<&str> = batch.tensors().map(|tensor| tensor.name()).collect();
    assert_eq!(names, ["number"], "what both have alike");
    let error = mixture.loader().tensors(["text"]).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("tensor 'text' is ragged in some"), "{error}");
}

#[test]
fn origin_bytes_with_a_wrong_checksum_are_not_delivered() {
    let folder = folder(0);
    let dataset = indexed(&folder);
    let path = folder.path().join("part-1.safetensors");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // Changes the text of one row in place, which keeps size, time and inode.
    let at = bytes.windows(64).position(|window| *window == text(62)[..64]).unwrap();
    bytes[at] ^= 1;
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes[at..=at], at as u64).unwrap();
    file.set_modified(before).unwrap();
    assert_eq!(dataset.read(62, "text").unwrap_err().kind(), ErrorKind::DataLoss);
    assert!(dataset.read(65, "text").unwrap().is_empty(), "no bytes need no checksum");
    assert_eq!(dataset.read(3, "text").unwrap(), text(3));
}
