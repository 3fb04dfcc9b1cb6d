//! Ragged rows from every source.

use super::*;
use crate::{fetch::begins, memory::ALIGNMENT};

const TEXT: usize = 0;
const LABEL: usize = 1;

fn text_begins(fixture: &Fixture, rows: &[RowRef]) -> Box<[usize]> {
    begins("text", rows.iter().map(|&row| fixture.row(row, TEXT).len() as u64), 0).unwrap()
}

fn gather(fixture: &Fixture, fetcher: &Fetcher, rows: &[RowRef]) -> Result<Sources, Error> {
    let begins = text_begins(fixture, rows);
    let mut texts = vec![0xee; *begins.last().unwrap()];
    let mut labels = vec![0xee; rows.len() * LABEL_BYTES];
    let sources = fetcher.gather(rows, &[TEXT, LABEL], &mut [&mut texts, &mut labels])?;
    for (index, &row) in rows.iter().enumerate() {
        assert_eq!(&labels[index * LABEL_BYTES..][..LABEL_BYTES], fixture.row(row, LABEL));
        assert!(&texts[begins[index]..begins[index + 1]] == fixture.row(row, TEXT), "{row:?}");
    }
    let rows = rows.len() as u64;
    assert_eq!(sources.rows_local + sources.rows_remote + sources.rows_origin, rows);
    assert_eq!(sources.bytes, (texts.len() + labels.len()) as u64);
    assert_eq!(sources.copies.delivered_bytes(), sources.bytes);
    Ok(sources)
}

fn alone(fixture: &Fixture) -> Arc<Fetcher> {
    Fetcher::new(fixture.manifest.clone(), &name(fixture), None, FetchOptions::default())
}

#[test]
fn reads_ragged_rows_from_nodes_mappings_and_origin() {
    let fixture = Fixture::ragged();
    let rows = shuffled(&fixture);
    let (nodes, address) = cluster(&fixture, 3, false);
    let far = fetcher(&fixture, &address, true);
    for _again in 0..2 {
        assert_eq!(gather(&fixture, &far, &rows).unwrap().rows_remote, SAMPLES);
    }
    let mut owners = nodes.iter().filter(|node| !node.asked().is_empty());
    assert!(owners.all(|node| node.state.connections.load(SeqCst) == 1));
    assert_eq!(gather(&fixture, &alone(&fixture), &rows).unwrap().rows_origin, SAMPLES);

    let (_nodes, address) = cluster(&fixture, 2, true);
    let near = fetcher(&fixture, &address, true);
    let deadline = process::now() + Duration::from_secs(20);
    while gather(&fixture, &near, &rows).unwrap().rows_local < SAMPLES {
        assert!(process::now() < deadline, "not all shards were mapped");
    }
    let copies = gather(&fixture, &near, &rows).unwrap().copies;
    assert_eq!(copies.copied_bytes, copies.local_bytes, "each byte is copied once");
    // Only rows without bytes, and no row at all.
    for few in [&fixture.refs([0, 4, 8].into_iter())[..], &[]] {
        for fetcher in [&far, &near, &alone(&fixture)] {
            gather(&fixture, fetcher, few).unwrap();
        }
    }
}

#[test]
fn writes_rows_at_their_indices_and_no_other_bytes() {
    let fixture = Fixture::ragged();
    let (_far, far) = cluster(&fixture, 2, false);
    let (_near, near) = cluster(&fixture, 1, true);
    // Every third place has a row of this gather, and the others rows of another gather.
    let all = fixture.refs((0..SAMPLES).map(|sample| sample * 41 % SAMPLES));
    let places: Vec<u32> = (1..u32::try_from(SAMPLES).unwrap()).step_by(3).collect();
    let rows: Vec<RowRef> = places.iter().map(|&place| all[place as usize]).collect();
    let begins = text_begins(&fixture, &all);
    let room = *begins.last().unwrap();
    for fetcher in [fetcher(&fixture, &far, false), fetcher(&fixture, &near, true), alone(&fixture)]
    {
        for _again in 0..2 {
            let mut texts = vec![0xee; room];
            let said = [Some(&*begins)];
            let placed = Placed::at(&rows, &places).beginning(&said);
            let out = &mut [&mut texts[..]];
            RowSource::gather(&*fetcher, placed, &[TEXT], out, &CancelToken::never()).unwrap();
            for (place, &row) in (0..).zip(&all) {
                let text = &texts[begins[place as usize]..begins[place as usize + 1]];
                match places.contains(&place) {
                    true => assert!(text == fixture.row(row, TEXT), "{place}"),
                    false => assert!(text.iter().all(|&byte| byte == 0xee), "{place}"),
                }
            }
        }
    }
}

#[test]
fn damaged_and_partial_rows_are_fetched_again() {
    let acts: [fn() -> Act; 4] = [
        || Act::Flip { frame: 1 },
        || Act::Flip { frame: 3 },
        || Act::Die { frames: 2 },
        || {
            Act::Raw(|request| {
                // Rows with other lengths than in the manifest.
                let (crcs, lengths, mut out) = ([0; 5], [3, 1, 4, 1, 5], Vec::new());
                let (lengths, payload_bytes) = (Some(&lengths[..]), 14);
                DataRun { tensor_slot: 0, first: 0, crcs: &crcs, lengths, payload_bytes }
                    .encode(request, &mut out);
                out.extend_from_slice(&[0; 14]);
                out
            })
        },
    ];
    for act in acts {
        let fixture = Fixture::ragged();
        let (nodes, address) = cluster(&fixture, 2, false);
        let fetcher = fetcher(&fixture, &address, true);
        nodes.iter().for_each(|node| node.plan([act()]));
        gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
        assert!(nodes.iter().any(|node| node.asked().len() > 1), "a node misbehaved");
    }
}

#[test]
fn rows_of_one_mapped_shard_are_views() {
    let fixture = Fixture::ragged();
    let (_nodes, address) = cluster(&fixture, 1, true);
    let fetcher = fetcher(&fixture, &address, true);
    for shard in 0..fixture.manifest.shard_count() {
        let rows = fixture.manifest.shard(shard).rows;
        let row = |row| fixture.row(RowRef { shard, row }, TEXT);
        let whole = fetcher.view_rows(shard, 0..rows, TEXT).unwrap();
        assert!(*whole == (0..rows).flat_map(row).copied().collect::<Vec<_>>());
        assert_eq!(&*fetcher.view(RowRef { shard, row: rows - 1 }, TEXT).unwrap(), row(rows - 1));
        assert!(fetcher.view_rows(shard, 0..rows + 1, TEXT).is_none());
        assert!(fetcher.view_rows(shard, 1..1, TEXT).is_none());
        // A copy would begin at a page boundary. So the test picks rows that do not.
        let within_page = |at: *const u8| at as usize % ALIGNMENT;
        let mut behind = (1..rows).filter_map(|row| fetcher.view_rows(shard, row..rows, TEXT));
        let behind = behind.find(|rows| within_page(rows.as_ptr()) != 0).unwrap();
        let lent = behind.private_view().unwrap();
        assert_eq!(within_page(lent.base().as_ptr()), within_page(behind.as_ptr()));
        assert_eq!(
            (lent.len(), behind.private_view().unwrap().len()),
            (behind.len(), behind.len())
        );
    }
}

#[test]
fn buffers_of_the_wrong_shape_are_refused() {
    let fixture = Fixture::ragged();
    let fetcher = alone(&fixture);
    let rows = fixture.refs([5, 6, 7].into_iter());
    let begins = text_begins(&fixture, &rows);
    let bytes = *begins.last().unwrap();
    let swapped = [0, begins[2] - begins[1], begins[2], bytes];
    let cases: [(&[usize], usize); 5] = [
        (&begins, bytes + 4),
        (&begins, bytes - 4),
        (&begins[..3], begins[2]),
        (&swapped, bytes),
        (&[], 0),
    ];
    for (begins, bytes) in cases {
        let (mut texts, said) = (vec![0; bytes], [Some(begins)]);
        let placed = Placed::all(&rows).beginning(&said);
        let out = &mut [&mut texts[..]];
        let error = RowSource::gather(&*fetcher, placed, &[TEXT], out, &CancelToken::never());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument, "{begins:?}");
    }
    let beyond = [RowRef { shard: 0, row: 10_000 }];
    let error = fetcher.gather(&beyond, &[TEXT], &mut [&mut []]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = begins_of_too_much().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
}

fn begins_of_too_much() -> Result<Box<[usize]>, Error> {
    begins("text", [1 << 30; 9].into_iter(), 0)
}
