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

/// Messages of the control plane that the admin tool prints as JSON.
const PRINTED: &[&str] = &[
    "ClusterChange",
    "ClusterDataset",
    "Counters",
    "Failure",
    "Load",
    "MemoryUse",
    "MoveProgress",
    "NodeDescription",
    "NodeFigures",
    "PlanFigures",
    "ReadJob",
    "TakeOverResponse",
];

/// Their fields whose JSON has another name or form, with the attribute of serde.
const PRINTED_FIELDS: &[(&str, &str)] = &[
    ("ClusterChange.number", r#"rename = "change""#),
    ("ClusterChange.plan_id", r#"rename = "plan", serialize_with = "super::json::hex""#),
    ("ClusterChange.rate", r#"skip_serializing_if = "Option::is_none""#),
    ("ClusterChange.replicas", r#"skip_serializing_if = "Option::is_none""#),
    ("ClusterDataset.snapshot", r#"serialize_with = "super::json::hex""#),
    ("Failure.age_ms", r#"rename = "age_seconds", serialize_with = "super::json::seconds""#),
    ("Failure.kind", r#"serialize_with = "super::json::kind""#),
    ("Failure.shard_id", "skip"),
    ("Failure.snapshot", r#"serialize_with = "super::json::hex""#),
    ("NodeDescription.boot_id", r#"serialize_with = "super::json::hex""#),
    ("NodeDescription.data_address", r#"rename = "data""#),
    ("NodeDescription.node_id", r#"rename = "node""#),
    ("NodeDescription.protocol_version_max", "skip"),
    ("NodeDescription.protocol_version_min", "skip"),
    ("NodeDescription.ring_digest", r#"serialize_with = "super::json::digest""#),
    ("NodeDescription.socket_path", r#"rename = "socket""#),
    (
        "NodeDescription.uptime_ms",
        r#"rename = "uptime_seconds", serialize_with = "super::json::seconds""#,
    ),
    ("NodeDescription.read_jobs", r#"rename = "jobs""#),
    ("NodeFigures.node_id", r#"rename = "node""#),
    ("PlanFigures.plan_id", r#"rename = "plan", serialize_with = "super::json::hex""#),
    ("PlanFigures.replicas", r#"skip_serializing_if = "Option::is_none""#),
    ("ReadJob.rate", r#"rename = "windows_per_second""#),
    ("ReadJob.snapshot", r#"serialize_with = "super::json::hex""#),
    ("TakeOverResponse.node_id", r#"rename = "coordinator""#),
];

/// Makes the code from the schema, without a protobuf compiler.
fn generate(made: &Made, root: &Path) -> Result<String, Box<dyn Error>> {
    let out = tempfile::tempdir()?;
    let descriptors = protox::compile(made.files, [root.join(made.schema)])?;
    let mut builder = tonic_prost_build::configure();
    for message in PRINTED {
        builder =
            builder.type_attribute(format!(".larder.v1.{message}"), "#[derive(serde::Serialize)]");
    }
    for (field, attribute) in PRINTED_FIELDS {
        builder = builder
            .field_attribute(format!(".larder.v1.{field}"), format!("#[serde({attribute})]"));
    }
    builder
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
        "{} is not what {} generates; run \
         LARDER_BLESS=1 cargo test -p larder-tests --features schema --test it schema",
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
