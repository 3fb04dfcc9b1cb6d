//! The control plane's checked-in code against the schema it was made from.

use std::{error::Error, fs, path::Path};

/// Makes the code from the schema, without a protobuf compiler.
fn generate(schema: &Path) -> Result<String, Box<dyn Error>> {
    let out = tempfile::tempdir()?;
    let descriptors = protox::compile(["larder/v1/node.proto"], [schema])?;
    tonic_prost_build::configure().bytes(".").out_dir(out.path()).compile_fds(descriptors)?;
    Ok(fs::read_to_string(out.path().join("larder.v1.rs"))?)
}

/// With `LARDER_BLESS=1` it is written instead of compared.
#[test]
fn the_checked_in_control_code_is_what_the_schema_generates() {
    let wire = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/wire");
    let checked_in = wire.join("src/control/generated.rs");
    let generated = generate(&wire.join("schema")).unwrap();
    if std::env::var_os("LARDER_BLESS").is_some_and(|value| value == "1") {
        fs::write(&checked_in, generated).unwrap();
        return;
    }
    let checked_in = fs::read_to_string(&checked_in).unwrap_or_default();
    assert!(
        checked_in == generated,
        "proto/wire/src/control/generated.rs is not what node.proto generates; \
         run LARDER_BLESS=1 cargo test -p larder-tests --test schema"
    );
}
