//! Bad input: each mistake is a fault that names its place.

use larder_formats::{Fault, Rows, RowsWanted, Table};

use super::{
    File,
    craft::{
        Batch, Craft, Fields, Value, byte, field, fixed_list, flatbuffer, framed, int, int32,
        large_text, list, long, longs, message, short, structure, text,
    },
    scan,
};

/// Scans a file that must fail. Returns the place and the reason.
fn fault(bytes: &[u8]) -> String {
    let fault = scan(bytes).unwrap_err();
    format!("{}: {}", fault.field, fault.why)
}

/// Returns the fault of the table of [`Craft::table`] after a change of its batch, in a stream and
/// in a file.
fn batch_fault(edit: impl Fn(&mut Batch)) -> String {
    let mut craft = Craft::table();
    edit(&mut craft.batches[0]);
    let found = fault(&craft.stream());
    assert_eq!(fault(&craft.file(|_| {})), found);
    found
}

fn schema_fault(fields: Vec<Fields>) -> String {
    let craft = Craft::of(fields);
    let found = fault(&craft.stream());
    assert_eq!(fault(&craft.file(|_| {})), found);
    found
}

fn nested(levels: usize) -> Fields {
    (1..levels).fold(int32("x"), |child, _| structure("s", vec![child]))
}

#[test]
fn crafted_table_is_good() {
    for bytes in [Craft::table().stream(), Craft::table().file(|_| {})] {
        let table = scan(&bytes).unwrap();
        let Rows::Spans(words) = &table.columns[1].rows else { panic!("words differ in length") };
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let words = words.iter().map(|range| &bytes[at(range.start)..at(range.end)]);
        assert_eq!(words.collect::<Vec<_>>(), [b"ab".as_slice(), b"", b"cde"]);
    }
}

#[test]
fn buffer_outside_its_body_is_a_fault() {
    let place = "batch 0 column 'n' values";
    for (buffer, why) in [
        ((40, 12), "at 40 with 12 bytes leave the body of 40"),
        ((i64::MAX, 12), "at 9223372036854775807 with 12 bytes leave the body of 40"),
        ((0, 8), "have 8 bytes where the rows need 12"),
        ((-8, 12), "is negative: -8"),
        ((0, -1), "is negative: -1"),
    ] {
        assert_eq!(batch_fault(|batch| batch.buffers[1] = buffer), format!("{place}: {why}"));
    }
    assert_eq!(
        batch_fault(|batch| batch.buffers[3] = (16, 12)),
        "batch 0 column 'words' offsets: have 12 bytes where the rows need 16"
    );
}

#[test]
fn body_outside_the_file_is_a_fault() {
    let mut craft = Craft::table();
    craft.batches[0].body_length = Some(-1);
    assert!(fault(&craft.stream()).ends_with("body length: is negative: -1"));
    craft.batches[0].body_length = Some(41);
    let found = fault(&craft.stream());
    assert!(found.contains("message at byte") && found.contains("a body of 41 bytes"), "{found}");
    craft.batches[0].body_length = Some(i64::MAX);
    assert!(fault(&craft.stream()).contains("a body of 9223372036854775807 bytes"));
    assert!(fault(&craft.file(|_| {})).contains("a body of 9223372036854775807 bytes"));
}

#[test]
fn bad_offsets_are_a_fault() {
    let with = |offsets: [i32; 4]| {
        let bytes: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        batch_fault(|batch| batch.body[16..32].copy_from_slice(&bytes))
    };
    let place = "batch 0 column 'words' offsets";
    assert_eq!(with([0, 2, 1, 5]), format!("{place}: fall from 2 to 1 at row 1"));
    assert_eq!(with([0, 2, 2, 6]), format!("{place}: lead to 6 at row 2, past the 5 values"));
    assert_eq!(with([-1, 2, 2, 5]), format!("{place}: is negative: -1"));
}

#[test]
fn offsets_that_begin_above_zero_are_read() {
    let mut craft = Craft::table();
    craft.batches[0].body[16] = 1;
    let table = scan(&craft.stream()).unwrap();
    let Rows::Spans(words) = &table.columns[1].rows else { panic!("words differ in length") };
    assert_eq!(words.iter().map(|range| range.end - range.start).collect::<Vec<_>>(), [1, 0, 3]);
}

#[test]
fn offsets_of_two_columns_that_overlap_are_a_fault() {
    let mut craft = Craft::table();
    craft.fields[0] = text("n");
    craft.batches[0].buffers.insert(1, (20, 16));
    assert_eq!(fault(&craft.stream()), "batch 0 buffers: overlap those of another column");
}

#[test]
fn node_of_another_length_is_a_fault() {
    let place = "batch 0 column 'n'";
    let found = batch_fault(|batch| batch.nodes[0] = (2, 0));
    assert_eq!(found, format!("{place} length: is 2 where the batch needs 3"));
    let found = batch_fault(|batch| batch.nodes[0] = (3, 4));
    assert_eq!(found, format!("{place} nulls: are 4 of 3 values"));
    let found = batch_fault(|batch| batch.nodes[0] = (3, -1));
    assert_eq!(found, format!("{place} nulls: is negative: -1"));
    let found = batch_fault(|batch| batch.rows = -3);
    assert_eq!(found, "batch 0 length: is negative: -3");

    let mut craft = Craft::of(vec![fixed_list("pair", 2, int32("item"))]);
    craft.batches = vec![Batch {
        rows: 2,
        nodes: vec![(2, 0), (3, 0)],
        buffers: vec![(0, 0), (0, 0), (0, 16)],
        body: vec![0; 16],
        ..Batch::default()
    }];
    assert_eq!(
        fault(&craft.stream()),
        "batch 0 column 'pair' length: is 3 where the batch needs 4"
    );
}

#[test]
fn list_with_elements_past_its_buffer_is_a_fault() {
    let mut craft = Craft::of(vec![list("l", int32("item"))]);
    craft.batches = vec![Batch {
        rows: 1,
        nodes: vec![(1, 0), (i64::MAX, 0)],
        buffers: vec![(0, 0), (0, 8), (0, 0), (8, 8)],
        body: vec![0; 16],
        ..Batch::default()
    }];
    let found = fault(&craft.stream());
    assert!(found.starts_with("batch 0 column 'l' values: have 8 bytes where"), "{found}");
}

#[test]
fn lists_of_lists_past_their_buffers_are_a_fault() {
    let craft = |outer: [i32; 2], inner: [i32; 3]| {
        let mut craft = Craft::of(vec![list("l", list("item", int32("item")))]);
        let numbers = [&outer[..], &inner, &[0], &[1, 2, 3, 4]].concat();
        craft.batches = vec![Batch {
            rows: 1,
            nodes: vec![(1, 0), (2, 0), (4, 0)],
            buffers: vec![(0, 0), (0, 8), (0, 0), (8, 12), (0, 0), (24, 16)],
            body: numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            ..Batch::default()
        }];
        craft.stream()
    };
    let good = craft([0, 2], [0, 2, 4]);
    let found = scan(&good).unwrap();
    assert_eq!((&*found.columns[0].shape, found.columns[0].ragged), (&[2][..], true));
    assert!(make(&found, &good).is_ok());
    assert!(fault(&craft([0, 3], [0, 2, 4])).ends_with("offsets: lead past the values"));
    assert!(fault(&craft([0, 2], [4, 2, 0])).ends_with("offsets: fall, or are negative"));
    assert!(fault(&craft([0, 2], [-2, 0, 2])).ends_with("offsets: fall, or are negative"));
    // The scan does not read the numbers.
    for inner in [[1, 3, 5], [0, 1 << 20, 1 << 21], [i32::MAX - 2, i32::MAX - 1, i32::MAX]] {
        let bad = craft([0, 2], inner);
        let found = scan(&bad).and_then(|table| make(&table, &bad));
        assert!(found.unwrap_err().why == "lead past the values", "{inner:?}");
    }
}

/// Makes the rows of all blocks.
fn make(table: &Table, bytes: &[u8]) -> Result<(), Fault> {
    let at = |offset: u64| usize::try_from(offset).unwrap();
    for column in &table.columns {
        let Rows::Blocks(blocks) = &column.rows else { panic!("no blocks") };
        let row_bytes = (!column.ragged).then_some(1);
        for placed in &blocks.blocks {
            let stored = &bytes[at(placed.range.start)..at(placed.range.end)];
            let scalar_bytes = column.dtype.size_bytes();
            let wanted = RowsWanted { rows: placed.rows.into(), row_bytes, scalar_bytes };
            placed.block.make(wanted, stored, blocks.recipes.as_bytes(), &mut |_, _| Ok(()))?;
        }
    }
    Ok(())
}

#[test]
fn too_few_nodes_or_buffers_are_a_fault() {
    let found = batch_fault(|batch| batch.nodes.truncate(1));
    assert_eq!(found, "batch 0 nodes: are 1 where the schema needs 2");
    let found = batch_fault(|batch| batch.buffers.truncate(4));
    assert_eq!(found, "batch 0 buffers: are 4 where the schema needs 5");

    let mut craft = Craft::table();
    craft.fields.insert(0, field("view", 24, Vec::new(), Vec::new()));
    craft.batches[0].nodes.insert(0, (3, 0));
    craft.batches[0].buffers.splice(0..0, [(0, 0), (0, 0)]);
    let found = fault(&craft.stream());
    assert_eq!(found, "batch 0 counts of further buffers: are 0 where the schema needs 1");
    for (count, why) in [
        (1, "buffers: are 7 where the schema needs 8".to_owned()),
        (i64::MAX, format!("buffers: are 7 where the schema needs {}", i64::MAX as u64 + 7)),
        (-1, "count of further buffers: is negative: -1".into()),
    ] {
        craft.batches[0].more = vec![(4, longs(&[count]))];
        assert_eq!(fault(&craft.stream()), format!("batch 0 {why}"));
    }
}

#[test]
fn schema_past_a_limit_is_a_fault() {
    let found = schema_fault(vec![nested(17)]);
    assert_eq!(found, "column 'x': lies more than 16 levels deep");
    let many = (0..4097).map(|index| int32(&index.to_string())).collect();
    assert_eq!(schema_fault(many), "schema: has more than 4096 columns");
    let fields = (0..5).map(|index| {
        structure(&index.to_string(), (0..4096).map(|index| int32(&index.to_string())).collect())
    });
    assert_eq!(
        schema_fault(fields.collect()),
        "column '4092': is one more than the 16384 fields that are read"
    );
    let long = "n".repeat(1025);
    let found = schema_fault(vec![int32(&long)]);
    assert_eq!(found, format!("column '{}': has more than 1024 bytes", "n".repeat(100)));
    let found = schema_fault(vec![structure(&long[..600], vec![int32(&long[..600])])]);
    assert!(found.ends_with("has more than 1024 bytes"), "{found}");
}

#[test]
fn columns_that_share_a_name_or_have_none_are_left_out() {
    let shared = vec![int32("a.b"), int32("c"), structure("a", vec![text("b")]), int32("c")];
    let craft = Craft::of([shared, vec![int32("c"), int32(""), int32("d")]].concat());
    let table = scan(&craft.stream()).unwrap();
    let names: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
    assert_eq!(names, ["d"]);
    let why = "is the name of several columns: give each its own";
    let left_out = [("a.b", why), ("c", why), ("", "has no name")];
    assert_eq!(table.left_out, left_out.map(|(name, why)| (name.to_owned(), why.to_owned())));
}

#[test]
fn schema_of_unknown_types_is_a_fault() {
    let found = schema_fault(vec![field("x", 27, Vec::new(), Vec::new())]);
    assert_eq!(found, "column 'x' type: has the unknown number 27");
    let found = schema_fault(vec![field("x", 2, vec![(0, int(24))], Vec::new())]);
    assert_eq!(found, "column 'x' type: is an integer of 24 bits");
    let found = schema_fault(vec![field("x", 3, vec![(0, short(3))], Vec::new())]);
    assert_eq!(found, "column 'x' type: is a float of kind 3");
    let found = schema_fault(vec![field("x", 12, Vec::new(), Vec::new())]);
    assert_eq!(found, "column 'x': is a list of 0 kinds of elements");
    let found = schema_fault(vec![fixed_list("x", -1, int32("item"))]);
    assert_eq!(found, "column 'x' size: is negative: -1");
    let found = schema_fault(vec![fixed_list("x", i32::MAX, int32("item"))]);
    assert_eq!(found, "column 'x': has rows of more than 4294967295 bytes");
}

#[test]
fn other_versions_orders_and_codecs_are_a_fault() {
    let mut craft = Craft::table();
    craft.schema = vec![(0, short(1))];
    let big_endian = "schema: is big-endian: only little-endian files are read";
    assert_eq!(fault(&craft.stream()), big_endian);
    assert_eq!(fault(&craft.file(|_| {})), big_endian);
    for codec in [0, 1] {
        // The offsets 0 and 2 are no size of the buffer.
        let more: Fields = vec![(3, Value::Table(vec![(0, byte(codec))]))];
        let found = batch_fault(|batch| batch.more.clone_from(&more));
        assert!(found.contains("bytes after decompression"), "{found}");
    }
    let more: Fields = vec![(3, Value::Table(vec![(0, byte(7))]))];
    let found = batch_fault(|batch| batch.more.clone_from(&more));
    assert_eq!(found, "batch 0 body: is compressed with the unknown codec 7");
    let old = Craft { version: 2, ..Craft::table() };
    assert_eq!(
        fault(&old.stream()),
        "message at byte 0 metadata version: is V3: only V4 and V5 are read"
    );
    let union = Craft { version: 3, ..Craft::of(vec![field("u", 14, Vec::new(), Vec::new())]) };
    let stream = [union.stream(), Batch::default().message(3)].concat();
    let why = "is V4, where unions have other buffers: not yet";
    assert_eq!(fault(&stream), format!("batch 0 metadata version: {why}"));
}

#[test]
fn messages_out_of_order_are_a_fault() {
    let batch = Batch::default().message(4);
    assert_eq!(fault(&batch), "message at byte 0: comes before the schema");
    let schema = Craft::of(Vec::new()).stream();
    let found = fault(&[&*schema, &*schema].concat());
    assert_eq!(found, format!("message at byte {}: is a second schema", schema.len()));
    let tensor = framed(&message(4, 4, Vec::new(), 0));
    let found = fault(&[schema, tensor].concat());
    assert!(found.ends_with("has type 4: neither schema, dictionary nor batch"), "{found}");
}

#[test]
fn file_without_a_schema_is_a_fault() {
    let missing = "schema: is missing: the file is empty or was cut off";
    for bytes in [&b""[..], b"abc", &[0; 4], &[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]] {
        assert_eq!(fault(bytes), missing);
    }
    assert_eq!(fault(&[0xFF; 4]), "message at byte 0: is cut off");
    let found = fault(b"PAR1 and further bytes");
    assert!(found.ends_with("at most 67108864 are read: is this an Arrow file?"), "{found}");
    assert!(fault(&[0xFF; 8]).contains("has 4294967295 bytes of metadata"));
    let found = fault(&[0, 0, 0, 4, 0, 0, 0, 0]);
    assert_eq!(found, "message at byte 0: has 67108864 bytes of metadata from byte 4, past byte 8");
}

#[test]
fn bytes_behind_the_end_marker_are_left_out() {
    let bytes = [Craft::table().stream(), vec![0; 4], Craft::table().stream()].concat();
    let table = scan(&bytes).unwrap();
    let name = format!("the last {} bytes", Craft::table().stream().len());
    let why = "lie behind the end marker of the stream";
    assert_eq!((table.rows, table.left_out), (3, vec![(name, why.into())]));
}

#[test]
fn bad_footer_is_a_fault() {
    let good = Craft::table().file(|_| {});
    let end = good.len() - 10;
    let with_length = |length: u32| {
        let mut bytes = good.clone();
        bytes[end..end + 4].copy_from_slice(&length.to_le_bytes());
        fault(&bytes)
    };
    let limit = 64 << 20;
    assert_eq!(with_length(0), format!("footer: has 0 bytes: from 1 to {limit} are read"));
    assert!(with_length(limit + 1).contains("footer: has 67108865 bytes"));
    let found = with_length(limit);
    assert_eq!(found, format!("footer: has {limit} bytes where the file has {end} before its end"));
    assert!(fault(&good[..end]).contains("the file does not end with ARROW1"));
    assert!(fault(b"ARROW1\0\0").starts_with("footer: "));
}

#[test]
fn bad_block_is_a_fault() {
    let mut craft = Craft::table();
    craft.batches.push(craft.batches[0].clone());
    let with = |index: usize, number: usize, value: i64| {
        fault(&craft.file(|blocks| blocks[index][number] = value))
    };
    assert_eq!(with(1, 0, -8), "footer batch 1: has a negative or too large number");
    assert_eq!(
        with(1, 2, i64::MAX),
        "footer batch 1 block: overflows"
            .replace("footer batch 1 block: overflows", &with(1, 2, i64::MAX))
    );
    assert!(with(1, 0, 8).starts_with("batch 1: lies at 8.."));
    assert!(with(1, 2, 4096).starts_with("batch 1: lies at "));
    assert!(with(0, 0, 0).starts_with("batch 0: lies at 0.."));
    assert!(with(1, 1, 64).contains("bytes of metadata from byte"));
    assert!(with(1, 1, 0).starts_with("message at byte"));
    let found = fault(&craft.file(|blocks| {
        blocks[1][1] += 8;
        blocks[1][2] -= 8;
    }));
    assert!(found.ends_with("has a body at another place than in the footer"), "{found}");
}

#[test]
fn malformed_flatbuffers_are_a_fault() {
    let frame = |metadata: &[u8]| {
        let length = u32::try_from(metadata.len()).unwrap().to_le_bytes();
        fault(&[&[0xFF; 4], &length, metadata].concat())
    };
    let metadata = "message at byte 0 metadata: is not a flatbuffer";
    for bytes in [&[0xFF; 8][..], &[1], &[4, 0, 0, 0], &[4, 0, 0, 0, 0, 0, 0, 0x80]] {
        let found = frame(bytes);
        assert!(found.starts_with(metadata), "{found}");
    }
    let name = (0, Value::Text(vec![0xFF]));
    let schema = vec![(1, Value::Tables(vec![vec![name]]))];
    let found = frame(&flatbuffer(&message(4, 1, schema, 0)));
    assert_eq!(found, "metadata: is not a flatbuffer: a string is not UTF-8");
    let found = frame(&flatbuffer(&vec![(0, short(4)), (1, byte(1)), (3, long(0))]));
    assert!(found.contains("has type 1"), "{found}");
}

#[test]
fn row_past_the_limit_is_a_fault() {
    let offsets: Vec<u8> =
        [0_i64, 1 << 32].iter().flat_map(|offset| offset.to_le_bytes()).collect();
    let batch = Batch {
        rows: 1,
        nodes: vec![(1, 0)],
        buffers: vec![(0, 0), (0, 16), (16, 1 << 32)],
        body_length: Some(16 + (1 << 32)),
        ..Batch::default()
    };
    let head = [Craft::of(vec![large_text("t")]).stream(), batch.message(4), offsets].concat();
    let bytes = head.len() as u64 + (1 << 32);
    let mut file = File { pieces: vec![(0, &head)], bytes, reads: Vec::new() };
    let fault = file.scan(&mut fastrand::Rng::with_seed(15)).unwrap_err();
    assert_eq!(fault.field, "batch 0 column 't' offsets");
    assert_eq!(fault.why, "give row 0 4294967296 bytes, at most 4294967295");
}

#[test]
fn rows_past_the_limit_are_a_fault_before_reads() {
    let rows = 70_000_000;
    let batch = Batch {
        rows,
        nodes: vec![(rows, 0)],
        buffers: vec![(0, 0), (0, 4 * rows + 4), (0, 0)],
        body_length: Some(4 * rows + 4),
        ..Batch::default()
    };
    let head = [Craft::of(vec![text("t")]).stream(), batch.message(4)].concat();
    let bytes = head.len() as u64 + 280_000_004;
    let mut file = File { pieces: vec![(0, &head)], bytes, reads: Vec::new() };
    let fault = file.scan(&mut fastrand::Rng::with_seed(16)).unwrap_err();
    assert_eq!((&*fault.field, file.reads.len()), ("batch 0 rows", 1));
}

#[test]
fn metadata_past_the_limit_is_left_out() {
    let pair =
        |key: &str, value: Vec<u8>| vec![(0, Value::Text(key.into())), (1, Value::Text(value))];
    let pairs = vec![
        pair("small", b"value".to_vec()),
        pair("large", vec![b'x'; 1 << 20]),
        pair("bytes", vec![0xFF]),
        pair("next", vec![b'x'; 1 << 19]),
    ];
    let mut craft = Craft::of(vec![int32("n")]);
    craft.schema = vec![(2, Value::Tables(pairs))];
    let table = scan(&craft.stream()).unwrap();
    assert_eq!(table.metadata.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), ["small", "next"]);
    let why = "are not UTF-8, or exceed 1048576 bytes in total";
    assert_eq!(table.left_out, [("2 values of the metadata".into(), why.into())]);
}

#[test]
fn shared_tables_take_bounded_work() {
    let shared = |child: Fields| {
        let mut fields = structure("s", Vec::new());
        fields[3].1 = Value::Repeated(1000, child);
        fields
    };
    let found =
        fault(&Craft::of(vec![(0..12).fold(int32("x"), |child, _| shared(child))]).stream());
    assert!(found.ends_with("one more than the 16384 fields that are read"), "{found}");

    let mut craft = Craft::of(vec![int32("n")]);
    for value in [vec![b'x'; 1 << 18], vec![0xFF; 1 << 18]] {
        let pair = vec![(0, Value::Text(b"key".to_vec())), (1, Value::Text(value))];
        craft.schema = vec![(2, Value::Repeated(1 << 20, pair))];
        let table = scan(&craft.stream()).unwrap();
        assert!(table.metadata.len() <= 3);
        assert_eq!(table.left_out.len(), 1);
    }
}

#[test]
fn column_without_a_name_is_left_out() {
    let table = scan(&Craft::of(vec![int32("")]).stream()).unwrap();
    assert_eq!(table.left_out, [(String::new(), "has no name".into())]);
}
