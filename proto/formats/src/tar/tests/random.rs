//! Random tars, and fixtures with random damage.

use proptest::{collection, prelude::*};

use super::*;

#[test]
fn damaged_files_give_a_table_or_a_fault() {
    let mut random = fastrand::Rng::with_seed(11);
    for (name, whole) in fixtures() {
        for seed in 0..400 {
            let mut file = whole.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(0..file.len());
                file[at] = random.u8(..);
                if random.bool() {
                    // A right checksum lets the mistake through to the fields.
                    let block = at / 512 * 512..at / 512 * 512 + 512;
                    let header = sealed(file[block.clone()].to_vec());
                    file[block].copy_from_slice(&header);
                }
            }
            if random.bool() {
                file.truncate(random.usize(1..file.len()));
            }
            let scan = hopping(file.len() as u64, 600);
            let scanned = run(scan, &file, seed);
            assert!(scanned.reads <= file.len() / 512 + 1, "{name}: {} reads", scanned.reads);
            if let Ok(table) = scanned.result {
                samples_fit(&table, file.len() as u64);
            }
        }
    }
}

/// Checks that all columns are as long as the table, and all rows inside the file.
fn samples_fit(table: &Table, file_bytes: u64) {
    for column in &table.columns {
        let rows = match &column.rows {
            Rows::Spans(spans) => {
                assert!(spans.iter().all(|range| range.end <= file_bytes));
                spans.len()
            }
            Rows::Inline(inline) => inline.len(),
            Rows::Strided { .. } | Rows::Blocks(_) => panic!("members are not side by side"),
        };
        assert_eq!(rows as u64, table.rows);
    }
}

/// The ways to write a path.
#[derive(Debug, Clone, Copy)]
enum Form {
    Ustar,
    Pax,
    Gnu,
}

fn written(path: &str, body: &[u8], form: Form) -> Vec<u8> {
    match form {
        Form::Ustar if path.len() <= 100 => file(path, body),
        Form::Gnu => [entry("././@LongLink", path.as_bytes(), b'L'), file("short", body)].concat(),
        _ => [pax("path", path), file("short", body)].concat(),
    }
}

/// A key, and for each suffix the form and the body of its member.
type Sample = (String, BTreeMap<String, (Form, Vec<u8>)>);

fn sample() -> impl Strategy<Value = Sample> {
    let body = prop_oneof![Just(0), 0..600_usize, 2000..9000_usize]
        .prop_flat_map(|bytes| collection::vec(any::<u8>(), bytes));
    let form = prop_oneof![Just(Form::Ustar), Just(Form::Pax), Just(Form::Gnu)];
    let suffix = prop_oneof!["jpg", "png", "seg\\.png", "json", "[a-z]{1,3}"]
        .prop_map(|suffix| format!("_{suffix}"));
    let integer = (form.clone(), any::<i64>()).prop_map(|(form, value)| {
        BTreeMap::from([("cls".to_owned(), (form, value.to_string().into_bytes()))])
    });
    let members = collection::btree_map(suffix, (form, body), 0..4);
    let key = prop_oneof!["[ab]", "[a-z]{1,4}(/[a-z]{1,4}){0,2}", "[a-z]{1,99}/[a-z]{1,99}"];
    (key, integer, members, any::<bool>()).prop_map(|(key, integer, mut members, is_labelled)| {
        if is_labelled || members.is_empty() {
            members.extend(integer);
        }
        (key, members)
    })
}

/// The samples in the form of `expected.json`.
fn model(written: &[Sample]) -> Value {
    let value = |(suffix, (_, body)): (&String, &(Form, Vec<u8>))| {
        let hex = body.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let integer = || str::from_utf8(body).unwrap().parse::<i64>().unwrap();
        (suffix.clone(), if suffix == "cls" { json!(integer()) } else { json!(hex) })
    };
    let sample = |(key, members): &Sample| json!({"key": key, "values": members.iter().map(value).collect::<Map<_, _>>()});
    written.iter().map(sample).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn random_tars_read_back_by_hops_and_as_a_stream(
        mut samples_written in collection::vec(sample(), 1..20),
        seed: u64,
        hop_bytes_min in 0..5000_u64,
        has_end: bool,
    ) {
        samples_written.dedup_by(|later, earlier| later.0 == earlier.0);
        let members = samples_written.iter().flat_map(|(key, members)| {
            members.iter().map(move |(suffix, (form, body))| {
                written(&format!("{key}.{suffix}"), body, *form)
            })
        });
        let mut file: Vec<u8> = members.flatten().collect();
        if has_end {
            file.extend([0; 1024]);
        }
        let file_bytes = file.len() as u64;
        let hopped = run(hopping(file_bytes, hop_bytes_min), &file, seed).result.unwrap();
        prop_assert_eq!(samples(&hopped, &file), model(&samples_written));
        let streamed = run(hopping(file_bytes, u64::MAX), &file, seed).result.unwrap();
        prop_assert_eq!(&streamed, &hopped);
        prop_assert_eq!(scan(&file).unwrap(), hopped);
    }
}
