//! The checked-in gRPC code against the schemas it was made from.

use std::{error::Error, fs, path::Path};

/// The code generated from one schema.
struct Made {
    /// Folder of the schema, from the workspace's root.
    schema: &'static str,
    /// Its files.
    files: &'static [&'static str],
    /// The package they are all of.
    package: &'static str,
    /// The code, from the workspace's root.
    code: &'static str,
    /// Whether Larder serves it.
    served: bool,
}

/// The control plane of Larder.
const CONTROL: Made = Made {
    schema: "proto/wire/schema",
    files: &["larder/v1/node.proto", "larder/v1/coordinator.proto", "larder/v1/admin.proto"],
    package: "larder.v1",
    code: "proto/wire/src/control/generated.rs",
    served: true,
};

/// The part of etcd's API that a node uses.
const ETCD: Made = Made {
    schema: "node/coordinator/schema",
    files: &["etcd/v3.proto"],
    package: "etcdserverpb",
    code: "node/coordinator/src/etcd/generated.rs",
    served: false,
};

/// Makes the code from the schema, without a protobuf compiler.
fn generate(made: &Made, root: &Path) -> Result<String, Box<dyn Error>> {
    let out = tempfile::tempdir()?;
    let descriptors = protox::compile(made.files, [root.join(made.schema)])?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_server(made.served)
        .build_transport(made.served)
        .out_dir(out.path())
        .compile_fds(descriptors)?;
    Ok(fs::read_to_string(out.path().join(format!("{}.rs", made.package)))?)
}

/// With `LARDER_BLESS=1` it is written instead of compared.
fn is_fresh(made: &Made) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let checked_in = root.join(made.code);
    let generated = generate(made, &root).expect("the schema compiles");
    if std::env::var_os("LARDER_BLESS").is_some_and(|value| value == "1") {
        fs::write(&checked_in, generated).expect("the checkout can be written to");
        return;
    }
    let checked_in = fs::read_to_string(&checked_in).unwrap_or_default();
    assert!(
        checked_in == generated,
        "{} is not what {} generates; run LARDER_BLESS=1 cargo test -p larder-tests --test schema",
        made.code,
        made.schema
    );
}

#[test]
fn checked_in_control_code_matches_its_schema() {
    is_fresh(&CONTROL);
}

#[test]
fn checked_in_etcd_code_matches_its_schema() {
    is_fresh(&ETCD);
}
