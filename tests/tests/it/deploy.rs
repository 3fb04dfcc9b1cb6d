//! The files of `deploy/`, without a cluster, a container or a service manager.

use std::path::Path;
use std::process::Command;

use larder_tests::{node::binary, python};

#[test]
fn deploy_files_are_valid_and_match_the_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let programs = binary("larder-node");
    assert_eq!(programs.parent(), binary("larder").parent(), "both are built into one folder");
    let output = Command::new(python::interpreter())
        .arg(root.join("deploy/validate"))
        .arg("--programs")
        .arg(programs.parent().expect("a folder"))
        .output()
        .expect("deploy/validate starts");
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problems}");
}
