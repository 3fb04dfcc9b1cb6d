//! Files made to break a reader, with the fragments that the error must hold.

use super::{GOOD, entry, npy, safetensors};

pub(super) struct Hostile {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) bytes: Vec<u8>,
    /// Fragments of the message, besides the name of the file.
    pub(super) says: &'static [&'static str],
}

fn hostile(name: &'static str, bytes: Vec<u8>, says: &'static [&'static str]) -> Hostile {
    Hostile { name, file: "bad.safetensors", bytes, says }
}

fn hostile_npy(name: &'static str, bytes: Vec<u8>, says: &'static [&'static str]) -> Hostile {
    Hostile { name, file: "bad.npy", bytes, says }
}

pub(super) fn safetensors_files() -> Vec<Hostile> {
    let many = |count: usize| {
        let one = |i| format!(r#""t{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
        format!("{{{}}}", (0..count).map(one).collect::<Vec<_>>().join(","))
    };
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{b}}}}}"#
        )
    };
    let mut past_end = safetensors(GOOD, 32);
    past_end[0..8].copy_from_slice(&5000u64.to_le_bytes());
    let mut enormous = safetensors(GOOD, 32);
    enormous[0..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut truncated = safetensors(GOOD, 32);
    truncated.truncate(truncated.len() - 1);
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    vec![
        hostile("fewer than eight bytes", vec![1, 0, 0], &["header length"]),
        hostile("header past the end", past_end, &["header length", "past the end"]),
        hostile("header length of all ones", enormous, &["header length", "100000000"]),
        hostile("header not JSON", safetensors("{]", 0), &["header"]),
        hostile("header not an object", safetensors("[1]", 0), &["header"]),
        hostile(
            "header not UTF-8",
            {
                let mut f = safetensors(GOOD, 32);
                f[12] = 0xff;
                f
            },
            &["header", "UTF-8"],
        ),
        hostile("deeply nested", safetensors(&format!(r#"{{"x":{deep}}}"#), 0), &["header"]),
        hostile(
            "NaN as a shape",
            safetensors(&entry("F32", "[NaN]", "[0,32]"), 32),
            &["tensor 'x'"],
        ),
        hostile(
            "a fraction as a shape",
            safetensors(&entry("F32", "[1.5]", "[0,32]"), 32),
            &["tensor 'x'"],
        ),
        hostile(
            "a negative shape",
            safetensors(&entry("F32", "[-4,2]", "[0,32]"), 32),
            &["tensor 'x'"],
        ),
        hostile(
            "unknown dtype",
            safetensors(&entry("F128", "[4,2]", "[0,32]"), 32),
            &["tensor 'x' dtype", "F128"],
        ),
        hostile(
            "overflowing shape",
            safetensors(&entry("F32", "[9223372036854775807,4]", "[0,32]"), 32),
            &["tensor 'x' shape", "overflow"],
        ),
        hostile(
            "shape that wraps to the right size",
            safetensors(&entry("U8", "[4294967296,4294967296,32]", "[0,32]"), 32),
            &["tensor 'x' shape", "overflow"],
        ),
        hostile(
            "shape and offsets disagree",
            safetensors(&entry("F32", "[4,3]", "[0,32]"), 32),
            &["tensor 'x' data_offsets", "48"],
        ),
        hostile(
            "offsets backwards",
            safetensors(&entry("F32", "[4,2]", "[32,0]"), 32),
            &["tensor 'x' data_offsets"],
        ),
        hostile(
            "offsets at the end of the world",
            safetensors(&entry("U8", "[1]", "[18446744073709551614,18446744073709551615]"), 32),
            &["tensor 'x' data_offsets", "overflow"],
        ),
        hostile(
            "too many dimensions",
            safetensors(&entry("U8", &format!("[{}1]", "1,".repeat(2000)), "[0,1]"), 1),
            &["tensor 'x'", "dimensions"],
        ),
        hostile(
            "missing dtype",
            safetensors(r#"{"x":{"shape":[1],"data_offsets":[0,1]}}"#, 1),
            &["tensor 'x'", "dtype"],
        ),
        hostile("three offsets", safetensors(&entry("U8", "[1]", "[0,1,2]"), 1), &["tensor 'x'"]),
        hostile(
            "a name twice",
            safetensors(
                r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
                1,
            ),
            &["tensor 'x'", "twice"],
        ),
        hostile(
            "metadata with a number",
            safetensors(r#"{"__metadata__":{"a":1}}"#, 0),
            &["__metadata__"],
        ),
        hostile(
            "overlap",
            safetensors(&two("[0,4]", "[2,6]"), 6),
            &["tensor 'b' data_offsets", "overlap"],
        ),
        hostile(
            "the same bytes twice",
            safetensors(&two("[0,4]", "[0,4]"), 4),
            &["tensor 'b' data_offsets", "overlap"],
        ),
        hostile(
            "a hole",
            safetensors(&two("[0,4]", "[6,10]"), 10),
            &["tensor 'b' data_offsets", "hole"],
        ),
        hostile(
            "a hole at the begin",
            safetensors(&two("[4,8]", "[8,12]"), 12),
            &["tensor 'a' data_offsets", "hole"],
        ),
        hostile("cut off by a byte", truncated, &["data_offsets", "cut off"]),
        hostile("a byte too many", safetensors(GOOD, 33), &["data_offsets", "more after"]),
        hostile(
            "a hundred thousand entries",
            safetensors(&many(100_000), 0),
            &["header", "10000 tensors"],
        ),
    ]
}

pub(super) fn arrays() -> Vec<Hostile> {
    let with = |descr: &str, order: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
    };
    let good = with("'<f4'", "False", "(4, 2)");
    let mut past_end = npy(&good, 32);
    past_end[8..10].copy_from_slice(&60_000u16.to_le_bytes());
    let mut huge = npy(&good, 32);
    huge[6] = 2;
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut version = npy(&good, 32);
    version[6] = 9;
    vec![
        hostile_npy("not npy", vec![0; 200], &["magic"]),
        hostile_npy("shorter than its magic", b"\x93NUM".to_vec(), &["magic"]),
        hostile_npy("unknown version", version, &["version"]),
        hostile_npy("header past the end", past_end, &["header length", "past the end"]),
        hostile_npy("header of four gigabytes", huge, &["header length"]),
        hostile_npy(
            "big-endian",
            npy(&with("'>f4'", "False", "(4, 2)"), 32),
            &["descr", "big-endian"],
        ),
        hostile_npy("pickled objects", npy(&with("'|O'", "False", "(4,)"), 32), &["descr"]),
        hostile_npy("strings", npy(&with("'<U8'", "False", "(1,)"), 32), &["descr"]),
        hostile_npy(
            "a record",
            npy(&with("[('a', '<f4')]", "False", "(4, 2)"), 32),
            &["descr", "record"],
        ),
        hostile_npy(
            "overflowing shape",
            npy(&with("'<f4'", "False", "(9223372036854775807, 9)"), 32),
            &["shape", "overflow"],
        ),
        hostile_npy(
            "a dimension past 64 bits",
            npy(&with("'<f4'", "False", "(99999999999999999999999,)"), 32),
            &["shape"],
        ),
        hostile_npy(
            "a negative dimension",
            npy(&with("'<f4'", "False", "(-4, 2)"), 32),
            &["shape"],
        ),
        hostile_npy(
            "too many dimensions",
            npy(&with("'|u1'", "False", &format!("({})", "1,".repeat(70))), 1),
            &["shape", "dimensions"],
        ),
        hostile_npy("nested", npy(&with("'<f4'", "False", &"(".repeat(9000)), 32), &["shape"]),
        hostile_npy("cut off", npy(&good, 31), &["shape", "cut off"]),
        hostile_npy("a byte too many", npy(&good, 33), &["shape", "more after"]),
        hostile_npy(
            "no shape",
            npy("{'descr': '<f4', 'fortran_order': False}", 32),
            &["shape", "missing"],
        ),
        hostile_npy(
            "a key twice",
            npy("{'descr': '<f4', 'descr': '<f4'}", 32),
            &["header", "twice"],
        ),
        hostile_npy("an unknown key", npy("{'__reduce__': 'x'}", 32), &["header", "unknown key"]),
        hostile_npy("no dictionary", npy("[1, 2]", 32), &["header"]),
        hostile_npy("a string without end", npy("{'descr", 32), &["header"]),
        hostile_npy("more after the dictionary", npy(&(good + " + 1"), 32), &["header"]),
    ]
}
