//! Tars with a mistake: one for each message.

use super::*;

/// The mistake of a file that begins with a good member.
fn fault(bad: &[u8]) -> String {
    let file = [&file("good.txt", b"good"), bad].concat();
    let Fault { field, why } = scan(&file).expect_err("the file has a mistake");
    format!("{field}: {why}")
}

#[test]
fn cut_files_are_refused() {
    assert_eq!(
        fault(&header("a.txt", 9, b'0')[..99]),
        "header at offset 1024: the file ends after 99 of its 512 bytes: it was cut off"
    );
    let cut = "has 9 bytes and padding from offset 1536, but the file ends at 1546: it was cut \
               off, or the size is wrong";
    assert_eq!(
        fault(&file("a.txt", b"123456789")[..522]),
        format!("member 'a.txt' at offset 1024: {cut}")
    );
    for kind in *b"LKxg" {
        assert_eq!(
            fault(&entry("a", b"123456789", kind)[..522]),
            format!("header at offset 1024: {cut}")
        );
    }
    for extension in [pax("path", "a.txt"), entry("a", b"123456789", b'L')] {
        let why = "file: ends after the PAX header or long path of a member: it was cut off";
        assert_eq!(fault(&extension), why);
        assert_eq!(fault(&[extension, vec![0; 1024]].concat()), why);
    }
}

#[test]
fn empty_and_unread_files_are_refused() {
    let mut empty = TarScan::new(0);
    assert_eq!(empty.wants(), None);
    empty.take(&[]).unwrap();
    let unread = TarScan::new(512);
    let whys = [empty, unread].map(|scan| Box::new(scan).finish().unwrap_err().why);
    assert_eq!(whys, ["is empty: a tar has at least one block", "was not read to its end"]);
}

#[test]
fn wrong_checksums_are_refused() {
    let mut block = header("a.txt", 0, b'0');
    block[0] = b'b';
    assert_eq!(
        fault(&block),
        "header at offset 1024: the checksum is wrong: this is no tar, or it is damaged"
    );
    block[148] = b'x';
    assert_eq!(
        fault(&block),
        "header at offset 1024: the checksum 'x03676' is not an octal number"
    );
}

#[test]
fn wrong_sizes_are_refused() {
    let with_size = |field: &[u8]| {
        let mut block = header("a.txt", 0, b'0');
        block[124..136].fill(0);
        block[124..124 + field.len()].copy_from_slice(field);
        fault(&sealed(block))
    };
    let at = "header at offset 1024: the size";
    assert_eq!(with_size(&[0xff; 12]), format!("{at} is negative"));
    assert_eq!(with_size(b"\x80\0\0\0\x80"), format!("{at} is more than 2^63 - 1"));
    assert_eq!(with_size(b"\x80\x01"), format!("{at} is more than 2^63 - 1"));
    assert_eq!(with_size(b"0000009"), format!("{at} '0000009' is not an octal number"));
    assert_eq!(with_size(b"12 34"), format!("{at} '12 34' is not an octal number"));
    assert_eq!(with_size(b"-1"), format!("{at} '-1' is not an octal number"));
}

#[test]
fn sparse_members_are_refused() {
    assert_eq!(
        fault(&header("a.txt", 0, b'S')),
        format!("member 'a.txt' at offset 1024: {SPARSE}")
    );
    for keyword in ["GNU.sparse.major", "GNU.sparse.map", "GNU.sparse.size"] {
        assert_eq!(fault(&pax(keyword, "1")), format!("PAX header at offset 1024: {SPARSE}"));
    }
}

#[test]
fn pax_records_that_lie_are_refused() {
    for (records, why) in [
        ("99 path=a.b\n", "a record has a wrong length: '99 path=a.b\\n'"),
        ("0 path=a.b\n", "a record has a wrong length: '0 path=a.b\\n'"),
        ("1 a=b\n", "a record has a wrong length: '1 a=b\\n'"),
        ("11 path=a.b\n", "a record does not end with a newline: '11 path=a.b\\n'"),
        ("12 path=a.b ", "a record does not end with a newline: '12 path=a.b '"),
        ("12", "a record has a wrong length: '12'"),
        (
            "+2 path=a.b\n",
            "a record does not begin with a decimal length and a space: '+2 path=a.b\\n'",
        ),
        (
            " path=a.b\n",
            "a record does not begin with a decimal length and a space: ' path=a.b\\n'",
        ),
        ("12 path a.b\n", "the record 'path a.b' has no '='"),
        ("10 size=x\n", "the size 'x' is not a number below 2^63"),
        ("8 size=\n", "the size '' is not a number below 2^63"),
        (
            "28 size=9223372036854775808\n",
            "the size '9223372036854775808' is not a number below 2^63",
        ),
        ("10 size=-\n", "the size '-' is not a number below 2^63"),
        ("8 path=\n", "the path '' is empty, holds a zero byte, or has more than 4096 bytes"),
        ("10 path=\0\n", "the path '\\0' is empty, holds a zero byte, or has more than 4096 bytes"),
    ] {
        let bad = [entry("pax", records.as_bytes(), b'x'), file("a.txt", b"a")].concat();
        assert_eq!(fault(&bad), format!("PAX header at offset 1024: {why}"), "{records:?}");
    }
}

#[test]
fn global_paths_and_sizes_are_refused() {
    for records in ["12 path=a.b\n", "10 size=1\n"] {
        assert_eq!(
            fault(&entry("pax", records.as_bytes(), b'g')),
            "PAX header at offset 1024: gives all further members one path or size"
        );
    }
}

#[test]
fn long_paths_and_records_are_refused() {
    let long = "p".repeat(5000);
    assert_eq!(
        fault(&entry("a", long.as_bytes(), b'L')),
        "header at offset 1024: has a body of 5000 bytes: a path has at most 4096"
    );
    assert!(fault(&pax("path", &long)).ends_with("or has more than 4096 bytes"));
    assert_eq!(
        fault(&pax("comment", &"c".repeat(1 << 20))),
        "header at offset 1024: has a body of 1048593 bytes: a list of PAX records has at most 1048576"
    );
    let comment = [pax("comment", &"c".repeat((1 << 20) - 17)), file("a.b", b"a")].concat();
    assert_eq!(scan(&comment).unwrap().rows, 1);
}

#[test]
fn suffix_twice_in_a_sample_is_refused() {
    assert_eq!(
        fault(&[file("a.txt", b"1"), file("a.TXT", b"2")].concat()),
        "member 'a.TXT' at offset 2048: is the second 'txt' of the sample 'a': a sample has each \
         suffix once"
    );
}

#[test]
fn too_many_members_are_refused() {
    let file = [file("a.txt", b"a"), file("b.txt", b"b")].concat();
    let mut scan = TarScan::new(file.len() as u64);
    scan.members = MEMBERS_MAX - 1;
    let Fault { field, why } = run(scan, &file, 0).result.unwrap_err();
    assert_eq!(field, "member 'b.txt' at offset 1024");
    assert_eq!(why, "is one too many: at most 10000000. Write several tars");
}

#[test]
fn member_longer_than_a_row_is_refused() {
    let mut scan = TarScan::new(1 << 40);
    scan.take(&header("a.bin", u32::MAX.into(), b'0')).unwrap();
    let mut scan = TarScan::new(1 << 40);
    let fault = scan.take(&header("a.bin", 1 << 32, b'0')).unwrap_err();
    assert_eq!(fault.why, "has 4294967296 bytes: a row has at most 4294967295");
}

#[test]
fn too_many_columns_are_refused() {
    let members: Vec<u8> =
        (1..4096).flat_map(|column| header(&format!("a.{column}"), 0, b'0')).collect();
    assert_eq!(scan(&members).unwrap().columns.len(), 4096);
    let Fault { field, why } = scan(&[members, header("a.last", 0, b'0')].concat()).unwrap_err();
    assert_eq!(field, "member 'a.last' at offset 2096640");
    assert_eq!(
        why,
        "has the suffix 'last', which is one column too many: at most 4096, with the keys"
    );
}

#[test]
fn too_many_absent_rows_are_refused() {
    let names = (0..6000).map(|index| format!("{index}.{}", index % 4000));
    let members: Vec<u8> = names.flat_map(|name| header(&name, 0, b'0')).collect();
    let Fault { field, why } = scan(&members).unwrap_err();
    assert_eq!(field, "member '4500.500' at offset 2304000");
    assert!(why.starts_with("makes more than 10000000 rows without a value"), "{why}");
}

#[test]
fn suffixes_that_cannot_name_a_column_are_refused() {
    let long = [pax("path", &format!("a.{}", "s".repeat(1025))), header("a", 0, b'0')].concat();
    assert!(fault(&long).ends_with("', which has more than 1024 bytes"), "{}", fault(&long));
    assert_eq!(
        fault(&file("a.__key__", b"")),
        "member 'a.__key__' at offset 1024: has the suffix '__key__', which is the name of the \
         column of keys"
    );
    let mut block = header("a.?", 0, b'0');
    block[2] = 0xff;
    assert_eq!(
        fault(&sealed(block)),
        "member 'a.\u{fffd}' at offset 1024: has a suffix that is not UTF-8: '\u{fffd}'"
    );
}

#[test]
fn compressed_files_are_refused_by_name() {
    for (magic, name) in [
        (&b"\x1f\x8b\x08"[..], "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh9", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
    ] {
        for bytes in [100, 2000] {
            let mut file = magic.to_vec();
            file.resize(bytes, 1);
            let Fault { field, why } = scan(&file).unwrap_err();
            assert_eq!(
                (&*field, why),
                ("file", format!("is compressed with {name}: decompress it first"))
            );
        }
    }
    assert_eq!(scan(&file("BZh.txt", b"a")).unwrap().rows, 1);
}

#[test]
fn lying_sizes_take_no_memory() {
    let vast = 1_u64 << 62;
    let with_size = |path: &str, kind: u8| {
        let mut block = header(path, 0, kind);
        block[124..136].copy_from_slice(&[&[0x80, 0, 0, 0][..], &vast.to_be_bytes()].concat());
        sealed(block)
    };
    for kind in [b'0', b'x', b'g', b'L', b'K', b'V'] {
        for path in ["a.txt", "a.cls"] {
            fault(&with_size(path, kind));
            // A vast file that holds the body may be real. No bytes of it are kept.
            let mut scan = TarScan::new(u64::MAX);
            let _ = scan.take(&with_size(path, kind));
            assert!(scan.carry.capacity() <= 1024);
        }
    }
    fault(&[pax("size", &vast.to_string()), header("a.cls", 1, b'0')].concat());
}
