//! Writes streams and files by hand, with any number in any place.

/// A value of a flatbuffer's table.
#[derive(Clone)]
pub(crate) enum Value {
    Scalar(Vec<u8>),
    Text(Vec<u8>),
    Table(Fields),
    Tables(Vec<Fields>),
    /// So many references to one table.
    Repeated(usize, Fields),
    /// Elements of a fixed size: their number, and the bytes of all.
    Structs(usize, Vec<u8>),
}

/// The fields of a table: number and value.
pub(crate) type Fields = Vec<(usize, Value)>;

pub(crate) fn byte(number: u8) -> Value {
    Value::Scalar(vec![number])
}

pub(crate) fn short(number: i16) -> Value {
    Value::Scalar(number.to_le_bytes().to_vec())
}

pub(crate) fn int(number: i32) -> Value {
    Value::Scalar(number.to_le_bytes().to_vec())
}

pub(crate) fn long(number: i64) -> Value {
    Value::Scalar(number.to_le_bytes().to_vec())
}

pub(crate) fn longs(numbers: &[i64]) -> Value {
    Value::Structs(numbers.len(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect())
}

fn pairs(pairs: &[(i64, i64)]) -> Value {
    let bytes = pairs.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat());
    Value::Structs(pairs.len(), bytes.collect())
}

/// Returns a flatbuffer with this outermost table.
pub(crate) fn flatbuffer(fields: &Fields) -> Vec<u8> {
    let mut out = vec![0; 4];
    let root = write(fields, &mut out);
    patch(&mut out, 0, root);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

fn patch(out: &mut [u8], at: usize, target: usize) {
    let offset = u32::try_from(target - at).unwrap();
    out[at..at + 4].copy_from_slice(&offset.to_le_bytes());
}

/// Appends a table, and returns its place.
fn write(fields: &Fields, out: &mut Vec<u8>) -> usize {
    let entries = fields.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
    let (mut vtable, mut inline, mut targets) = (vec![0_u16; entries], vec![0; 4], Vec::new());
    for (number, value) in fields {
        vtable[*number] = u16::try_from(inline.len()).unwrap();
        if let Value::Scalar(bytes) = value {
            inline.extend_from_slice(bytes);
        } else {
            targets.push((inline.len(), value));
            inline.extend_from_slice(&[0; 4]);
        }
    }
    let vtable_bytes = u16::try_from(4 + 2 * entries).unwrap();
    let head = [vtable_bytes, u16::try_from(inline.len()).unwrap()];
    out.extend(head.iter().chain(&vtable).flat_map(|number| number.to_le_bytes()));
    let place = out.len();
    inline[..4].copy_from_slice(&i32::from(vtable_bytes).to_le_bytes());
    out.extend_from_slice(&inline);
    for (at, value) in targets {
        let target = write_value(value, out);
        patch(out, place + at, target);
    }
    place
}

fn write_value(value: &Value, out: &mut Vec<u8>) -> usize {
    let place = out.len();
    let mut vector = |count: usize, bytes: &[u8]| {
        out.extend_from_slice(&u32::try_from(count).unwrap().to_le_bytes());
        out.extend_from_slice(bytes);
        place
    };
    match value {
        Value::Scalar(_) => unreachable!("scalars lie in the table"),
        Value::Text(bytes) => vector(bytes.len(), bytes),
        Value::Structs(count, bytes) => vector(*count, bytes),
        Value::Table(fields) => write(fields, out),
        Value::Repeated(count, table) => {
            vector(*count, &vec![0; 4 * count]);
            let target = write(table, out);
            (0..*count).for_each(|index| patch(out, place + 4 + 4 * index, target));
            place
        }
        Value::Tables(tables) => {
            vector(tables.len(), &vec![0; 4 * tables.len()]);
            for (index, table) in tables.iter().enumerate() {
                let target = write(table, out);
                patch(out, place + 4 + 4 * index, target);
            }
            place
        }
    }
}

/// Returns a field of a schema.
pub(crate) fn field(name: &str, kind: u8, parameters: Fields, children: Vec<Fields>) -> Fields {
    vec![
        (0, Value::Text(name.into())),
        (2, byte(kind)),
        (3, Value::Table(parameters)),
        (5, Value::Tables(children)),
    ]
}

pub(crate) fn int32(name: &str) -> Fields {
    field(name, 2, vec![(0, int(32)), (1, byte(1))], Vec::new())
}

pub(crate) fn text(name: &str) -> Fields {
    field(name, 5, Vec::new(), Vec::new())
}

pub(crate) fn large_text(name: &str) -> Fields {
    field(name, 20, Vec::new(), Vec::new())
}

pub(crate) fn list(name: &str, child: Fields) -> Fields {
    field(name, 12, Vec::new(), vec![child])
}

pub(crate) fn fixed_list(name: &str, size: i32, child: Fields) -> Fields {
    field(name, 16, vec![(0, int(size))], vec![child])
}

pub(crate) fn structure(name: &str, children: Vec<Fields>) -> Fields {
    field(name, 13, Vec::new(), children)
}

/// A batch and its body.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    pub(crate) rows: i64,
    pub(crate) nodes: Vec<(i64, i64)>,
    pub(crate) buffers: Vec<(i64, i64)>,
    /// Further fields of the header.
    pub(crate) more: Fields,
    pub(crate) body: Vec<u8>,
    /// The length of the body, if it is not that of `body`.
    pub(crate) body_length: Option<i64>,
}

impl Batch {
    pub(crate) fn message(&self, version: i16) -> Vec<u8> {
        let mut header =
            vec![(0, long(self.rows)), (1, pairs(&self.nodes)), (2, pairs(&self.buffers))];
        header.extend(self.more.clone());
        let length = self.body_length.unwrap_or(i64::try_from(self.body.len()).unwrap());
        framed(&message(version, 3, header, length))
    }
}

pub(crate) fn message(version: i16, kind: u8, header: Fields, body_length: i64) -> Fields {
    vec![(0, short(version)), (1, byte(kind)), (2, Value::Table(header)), (3, long(body_length))]
}

/// Puts the continuation and the length before a message.
pub(crate) fn framed(message: &Fields) -> Vec<u8> {
    let metadata = flatbuffer(message);
    let length = u32::try_from(metadata.len()).unwrap().to_le_bytes();
    [&[0xFF; 4], &length, &*metadata].concat()
}

/// A stream or file with one schema.
#[derive(Clone)]
pub(crate) struct Craft {
    pub(crate) version: i16,
    pub(crate) fields: Vec<Fields>,
    /// Further fields of the schema.
    pub(crate) schema: Fields,
    pub(crate) batches: Vec<Batch>,
}

impl Craft {
    /// Returns a table with columns `n` and `words`, and the rows (7, "ab"), (8, ""), (9, "cde").
    pub(crate) fn table() -> Self {
        let mut body: Vec<u8> = [7_i32, 8, 9, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
        body.extend([0_i32, 2, 2, 5].iter().flat_map(|n| n.to_le_bytes()));
        body.extend(b"abcde\0\0\0");
        let batch = Batch {
            rows: 3,
            nodes: vec![(3, 0), (3, 0)],
            buffers: vec![(0, 0), (0, 12), (16, 0), (16, 16), (32, 5)],
            body,
            ..Batch::default()
        };
        let fields = vec![int32("n"), text("words")];
        Self { version: 4, fields, schema: Vec::new(), batches: vec![batch] }
    }

    /// Returns a stream with these columns, without batches.
    pub(crate) fn of(fields: Vec<Fields>) -> Self {
        Self { version: 4, fields, schema: Vec::new(), batches: Vec::new() }
    }

    fn schema(&self) -> Fields {
        let fields = (1, Value::Tables(self.fields.clone()));
        [fields].into_iter().chain(self.schema.clone()).collect()
    }

    pub(crate) fn stream(&self) -> Vec<u8> {
        let mut out = framed(&message(self.version, 1, self.schema(), 0));
        for batch in &self.batches {
            out.extend(batch.message(self.version));
            out.extend_from_slice(&batch.body);
        }
        out
    }

    /// Returns a file. `edit` changes the blocks: offset, bytes of metadata, bytes of the body.
    pub(crate) fn file(&self, edit: impl Fn(&mut Vec<[i64; 3]>)) -> Vec<u8> {
        let signed = |number: usize| i64::try_from(number).unwrap();
        let (mut out, mut blocks) = (b"ARROW1\0\0".to_vec(), Vec::new());
        for batch in &self.batches {
            let message = batch.message(self.version);
            blocks.push([out.len(), message.len(), batch.body.len()].map(signed));
            out.extend(message);
            out.extend_from_slice(&batch.body);
        }
        edit(&mut blocks);
        let footer = flatbuffer(&vec![
            (0, short(self.version)),
            (1, Value::Table(self.schema())),
            (
                3,
                Value::Structs(
                    blocks.len(),
                    blocks.iter().flatten().flat_map(|n| n.to_le_bytes()).collect(),
                ),
            ),
        ]);
        out.extend_from_slice(&footer);
        out.extend(u32::try_from(footer.len()).unwrap().to_le_bytes());
        out.extend(b"ARROW1");
        out
    }
}
