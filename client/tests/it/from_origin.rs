//! A dataset in a local folder, opened without a cluster: every row comes from the origin.

use std::{collections::BTreeMap, fs, path::Path};

use larder_client::{
    CancelToken, Dataset, ErrorKind, Mixture, admin,
    sampler::{EpochDigest, Last, Shuffle, Stop},
};
use safetensors::{Dtype, tensor::TensorView};
use tempfile::TempDir;

const FILES: u16 = 3;
const ROWS: u16 = 40;

/// Three files of 40 samples, in the safetensors format: an image of 6 x 4 bytes, and a label with
/// the number of the sample.
fn folder() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    for file in 0..FILES {
        let samples = || file * ROWS..(file + 1) * ROWS;
        let images: Vec<u8> = samples().flat_map(image).collect();
        let labels: Vec<u8> =
            samples().flat_map(|sample| i32::from(sample).to_le_bytes()).collect();
        let rows = usize::from(ROWS);
        let tensors = [
            ("image", TensorView::new(Dtype::U8, vec![rows, 6, 4], &images).expect("a tensor")),
            ("label", TensorView::new(Dtype::I32, vec![rows], &labels).expect("a tensor")),
        ];
        let path = folder.path().join(format!("part-{file}.safetensors"));
        let bytes = safetensors::serialize(tensors, None).expect("a valid file");
        fs::write(path, bytes).expect("a writable folder");
    }
    let uri = uri_of(folder.path());
    (folder, uri)
}

fn uri_of(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn image(sample: u16) -> Vec<u8> {
    (0..24).map(|i| (sample.wrapping_mul(257) ^ (i * 11)).to_le_bytes()[0]).collect()
}

#[test]
fn unindexed_folder_is_indexed_once_and_read() {
    let (folder, uri) = folder();
    fs::write(folder.path().join("notes.txt"), b"of mine").unwrap();
    let dataset = Dataset::open(&uri, None).unwrap();
    let indexed = dataset.indexed_now().expect("it had no manifest").to_string();
    let manifest = format!("manifest {uri}/.larder/{}.manifest", dataset.snapshot());
    assert!(
        indexed.contains(&manifest) && indexed.contains("from 3 files of 40 rows each"),
        "{indexed}"
    );
    assert!(
        indexed.ends_with("left out: notes.txt is not of a kind that can be indexed"),
        "{indexed}"
    );
    let again = Dataset::open(&uri, None).unwrap();
    assert!(again.indexed_now().is_none());
    assert_eq!(again.snapshot(), dataset.snapshot());
    assert_eq!(dataset.samples(), u64::from(FILES * ROWS));
    for sample in [0, 39, 40, 119] {
        assert_eq!(dataset.read(sample.into(), "image").unwrap(), image(sample));
        let label = dataset.read(sample.into(), "label").unwrap();
        assert_eq!(label, i32::from(sample).to_le_bytes());
    }
    let rows = dataset.rows(35..45, "image").unwrap();
    assert_eq!(rows, (35..45).flat_map(image).collect::<Vec<_>>());
    assert!(dataset.rows(120..120, "image").unwrap().is_empty());
}

#[test]
fn read_ends_when_cancelled() {
    let (_folder, uri) = folder();
    let dataset = Dataset::open(&uri, None).unwrap();
    let cancel = CancelToken::new();
    let take = dataset.take(&[3, 50], None).unwrap();
    assert_eq!(take.read_unless(&cancel).unwrap().len(), 2);
    cancel.cancel();
    let taken = take.read_unless(&cancel).map(drop);
    let sliced = dataset.slice_unless(0..5, None, &cancel).map(drop);
    for error in [taken.unwrap_err(), sliced.unwrap_err()] {
        assert!(error.to_string().contains("cancelled"), "{error}");
    }
}

#[test]
fn chosen_rows_are_read_into_buffers_of_the_caller() {
    let (_folder, uri) = folder();
    let dataset = Dataset::open(&uri, None).unwrap();
    let names = ["label".to_owned(), "image".to_owned()];
    let take = dataset.take(&[119, 0, -1, 40], Some(&names)).unwrap();
    let samples = [119, 0, 119, 40_u8];
    let mut buffers = take.bytes().into_iter().map(|bytes| vec![0; bytes]).collect::<Vec<_>>();
    let [labels, images] = &mut buffers[..] else { panic!("two tensors") };
    let cancel = CancelToken::never();
    take.fill(&mut [labels, images], &cancel).unwrap();
    assert_eq!(*labels, samples.map(|sample| i32::from(sample).to_le_bytes()).concat());
    assert_eq!(*images, samples.into_iter().map(u16::from).flat_map(image).collect::<Vec<_>>());
    let before = labels.clone();
    let one = take.fill(&mut [labels], &cancel).unwrap_err();
    let turned = take.fill(&mut [images, labels], &cancel).unwrap_err();
    for error in [one, turned] {
        assert!(error.advice_text().unwrap().contains("Take::bytes()"), "{error}");
    }
    assert_eq!(*labels, before);
}

#[test]
fn index_outside_the_dataset_is_named_with_its_place() {
    let (_folder, uri) = folder();
    let dataset = Dataset::open(&uri, None).unwrap();
    for (indices, what) in [
        (&[0, 120, 500][..], "there is no sample 120, which is index 1 of the list"),
        (&[5, 6, -121], "there is no sample -121, which is index 2 of the list"),
        (&[i64::MIN], "there is no sample -9223372036854775808"),
    ] {
        let error = dataset.take(indices, None).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.what()), (ErrorKind::InvalidArgument, what));
        assert!(error.advice_text().unwrap().contains("the dataset has 120"), "{error}");
    }
    let none = dataset.take(&[], None).unwrap().read().unwrap();
    assert!(none.iter().all(|tensor| tensor.shape[0] == 0));
}

/// Large reads are cut in two, ragged rows too.
#[test]
fn large_read_in_two_halves_has_every_row_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=250).cycle().take(20 << 20).collect();
    fs::write(folder.path().join("tokens.bin"), &bytes).unwrap();
    let tokens = Some(admin::TokenSpec {
        dtype: admin::Dtype::U8,
        window: 1000,
        stride: 1000,
        offset: None,
    });
    let options = admin::IndexOptions { tokens, ..admin::IndexOptions::default() };
    let uri = uri_of(folder.path());
    admin::index_prefix(std::slice::from_ref(&uri), &options, &|_| {}, &CancelToken::never())
        .unwrap();
    let dataset = Dataset::open(&uri, None).unwrap();
    let indices: Vec<i64> = (0..9_001).map(|row| row * 7 % 20_000).collect();
    let take = dataset.take(&indices, None).unwrap();
    let mut out = vec![0; take.bytes()[0]];
    take.into(&mut [&mut out]).unwrap();
    for (row, index) in out.chunks(1000).zip(indices) {
        let at = usize::try_from(index).unwrap() * 1000;
        assert_eq!(row, &bytes[at..at + 1000]);
    }
}

#[test]
fn rows_beyond_memory_are_an_error_without_abort() {
    let folder = tempfile::tempdir().unwrap();
    // Overlapping windows: 48 million, of 16 MiB each.
    let (window, bytes) = (1 << 24, 1 << 26);
    fs::File::create(folder.path().join("tokens.bin")).unwrap().set_len(bytes).unwrap();
    let tokens =
        Some(admin::TokenSpec { dtype: admin::Dtype::U8, window, stride: 1, offset: None });
    let options = admin::IndexOptions { tokens, ..admin::IndexOptions::default() };
    let uri = uri_of(folder.path());
    admin::index_prefix(std::slice::from_ref(&uri), &options, &|_| {}, &CancelToken::never())
        .unwrap();
    let dataset = Dataset::open(&uri, None).unwrap();
    let name = dataset.tensors()[0].name().to_owned();
    let error = dataset.rows(0..dataset.samples(), &name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
}

#[test]
fn error_for_unknown_sample_or_tensor_lists_valid_ones() {
    let (folder, uri) = folder();
    let dataset = Dataset::open(&uri, None).unwrap();
    let error = dataset.read(120, "image").unwrap_err();
    assert_eq!(
        (error.kind(), error.what()),
        (ErrorKind::InvalidArgument, "there is no sample 120")
    );
    let error = dataset.read(0, "sound").unwrap_err();
    assert_eq!(error.advice_text(), Some("its tensors are: image, label"));
    assert_eq!(dataset.rows(5..121, "image").unwrap_err().kind(), ErrorKind::InvalidArgument);

    let open = |uri: &str| Dataset::open(uri, None).unwrap_err().kind();
    assert_eq!(open("imagenet"), ErrorKind::InvalidArgument);
    assert_eq!(open(&format!("{uri}@v7")), ErrorKind::NotFound);
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert_eq!(open(&uri_of(&empty)), ErrorKind::NotFound);
}

#[test]
fn epoch_has_every_sample_once_with_its_bytes() {
    let (_folder, uri) = folder();
    let dataset = Dataset::open(&uri, None).unwrap();
    let builder = dataset.loader().batch_size(16).seed(3).last(Last::Pad);
    let mut loader = builder.shuffle(Shuffle::Global).build().unwrap();
    let mut orders = Vec::new();
    for epoch in 0..2 {
        let mut seen = BTreeMap::new();
        let mut order = Vec::new();
        for batch in loader.epoch(epoch).unwrap() {
            let batch = batch.unwrap();
            let (images, labels) = (batch.tensor("image"), batch.tensor("label"));
            for (index, &sample) in batch.samples().iter().enumerate() {
                let number = u16::try_from(sample).unwrap();
                assert_eq!(images.row(index), image(number));
                assert_eq!(labels.row(index), i32::from(number).to_le_bytes());
                if index < batch.len() - batch.padding() {
                    *seen.entry(sample).or_insert(0) += 1;
                    order.push(sample);
                }
            }
        }
        assert_eq!(seen.len(), 120);
        assert_eq!(loader.digest(), EpochDigest::of_samples(loader.pass_id(epoch), 0..120));
        orders.push(order);
    }
    assert_ne!(orders[0], orders[1]);
    let stats = loader.stats();
    assert_eq!((stats.samples, stats.padding, stats.batches), (240, 16, 16));
    assert_eq!(stats.sources.rows_origin, 256);
    assert_eq!(stats.sources.bytes, 256 * 28);
}

#[test]
fn training_and_validation_splits_are_disjoint_when_interleaved() {
    let (_folder, uri) = folder();
    let dataset = Dataset::open(&uri, None).unwrap();
    let parts = dataset.split(&[0.8, 0.2], 7).unwrap();
    assert_eq!(parts.iter().map(Dataset::samples).collect::<Vec<_>>(), [96, 24]);
    assert_eq!(
        Dataset::open(&uri, None).unwrap().split(&[0.8, 0.2], 7).unwrap()[1].view(),
        parts[1].view()
    );
    let build = |part: &Dataset| part.loader().batch_size(12).shuffle(Shuffle::Global).build();
    let [mut train, mut validate] = [&parts[0], &parts[1]].map(|part| build(part).unwrap());
    let (train, validate) = (train.epoch(0).unwrap(), validate.epoch(0).unwrap());
    let mut seen: Vec<u64> = train
        .chain(validate)
        .flat_map(|batch| {
            let batch = batch.unwrap();
            for (index, &sample) in batch.samples().iter().enumerate() {
                let number = u16::try_from(sample).unwrap();
                assert_eq!(batch.tensor("image").row(index), image(number));
            }
            batch.samples().to_vec()
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, Vec::from_iter(0..120));

    let every_tenth = parts[1].select((0..24).step_by(10).collect::<Vec<_>>()).unwrap();
    assert_eq!(every_tenth.samples(), 3);
    for index in 0..3 {
        let number = u16::try_from(parts[1].view().sample_at(index * 10)).unwrap();
        assert_eq!(every_tenth.read(index, "image").unwrap(), image(number));
    }
    let error = every_tenth.read(3, "image").unwrap_err();
    assert_eq!(error.what(), "there is no sample 3");
    let error = dataset.select(vec![3, 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("indices must ascend"), "{error}");
}

#[test]
fn mixture_has_each_dataset_in_its_share_with_its_bytes() {
    let (_folder, uri) = folder();
    let dataset = Dataset::open(&uri, None).unwrap();
    let halves = dataset.split(&[0.5, 0.5], 1).unwrap();
    let weighted = halves.iter().cloned().zip([0.75, 0.25]);
    let mixture = Mixture::new(weighted, 0, Stop::All).unwrap();
    assert_eq!(mixture.draws().collect::<Vec<_>>(), [180, 60]);
    let mut loader = mixture.loader().batch_size(8).shuffle(Shuffle::Global).build().unwrap();
    let mut times = BTreeMap::new();
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        let rows = batch.datasets().unwrap().iter().zip(batch.samples());
        for (index, (&half, &sample)) in rows.enumerate() {
            assert!(halves[half as usize].view().index_of(sample).is_some());
            assert_eq!(batch.tensor("image").row(index), image(u16::try_from(sample).unwrap()));
            *times.entry((half, sample)).or_insert(0) += 1;
        }
        assert_eq!(batch.datasets().unwrap().iter().filter(|half| **half == 0).count(), 6);
    }
    assert_eq!(times.len(), 120);
    assert!(times.iter().all(|((half, _), times)| *times == if *half == 0 { 3 } else { 1 }));
    assert_eq!(loader.digest(), loader.expected_digest());
}

#[test]
fn job_starts_while_the_cluster_is_down() {
    let (_folder, uri) = folder();
    // A port that was free a moment ago and has no listener.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cluster = format!("http://127.0.0.1:{port}");
    let dataset = Dataset::open(&uri, Some(&cluster)).unwrap();
    assert!(!dataset.opened_by_node());
    assert!(dataset.cluster().unwrap().members().is_empty(), "kept, should its nodes come");
    assert_eq!(dataset.read(7, "image").unwrap(), image(7));
}

/// An indexed folder with checksums, and the path of its second file.
fn pinned_folder() -> (TempDir, String, std::path::PathBuf) {
    let (folder, uri) = folder();
    let prefix = admin::OriginUri::parse(&uri).expect("an address");
    let options =
        admin::IndexOptions { checksum: true, shard_bytes: 4096, ..admin::IndexOptions::default() };
    let indexed = async {
        let origin = admin::Origin::connect(&prefix).await.expect("a folder");
        admin::index(&origin, &prefix, &options, &|_| {}).await.expect("an index")
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(indexed);
    let second = folder.path().join("part-1.safetensors");
    (folder, uri, second)
}

/// Flips a bit of the last byte and keeps size and time, as a decaying disk does.
fn rot(path: &Path) {
    let (mut bytes, times) = (fs::read(path).expect("bytes"), fs::metadata(path).expect("times"));
    *bytes.last_mut().expect("a byte") ^= 1;
    let file = fs::OpenOptions::new().write(true).open(path).expect("the file");
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("written");
    file.set_modified(times.modified().expect("a time")).expect("set back");
}

#[test]
fn checksums_are_verified_even_for_single_row_reads() {
    let (_folder, uri, second) = pinned_folder();
    let dataset = Dataset::open(&uri, None).unwrap();
    for sample in [0, 45, 119] {
        assert_eq!(dataset.read(sample.into(), "image").unwrap(), image(sample));
        let label = dataset.read(sample.into(), "label").unwrap();
        assert_eq!(label, i32::from(sample).to_le_bytes());
    }
    rot(&second);
    let rotten = Dataset::open(&uri, None).unwrap();
    // The last bytes of the file are an image. The images are so short that all of a shard share a
    // checksum.
    for sample in [0, 79] {
        let error = rotten.read(sample, "image").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DataLoss, "{error}");
    }
    assert_eq!(rotten.read(79, "label").unwrap(), 79_i32.to_le_bytes());
}

#[test]
fn rows_are_read_unverified_without_checksum_tables() {
    let (folder, uri, second) = pinned_folder();
    fs::remove_dir_all(folder.path().join(".larder/checksums")).unwrap();
    rot(&second);
    let dataset = Dataset::open(&uri, None).unwrap();
    assert_eq!(dataset.read(45, "image").unwrap(), image(45));
}
