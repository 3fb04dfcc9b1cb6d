//! Runs the Python that `make test` prepared: numpy and safetensors as their authors ship them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter with the packages of `tests/python/requirements.txt`.
///
/// # Panics
/// When there is none: the tests then say how to get one rather than skip.
#[must_use]
pub fn interpreter() -> PathBuf {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace");
    let python = std::env::var_os("LARDER_TEST_PYTHON")
        .map_or_else(|| root.join("target/venv/bin/python"), PathBuf::from);
    assert!(
        python.exists(),
        "no Python with numpy and safetensors at {}: run `make target/venv/bin/python` once",
        python.display()
    );
    python
}

/// Runs `tests/python/<script>` and returns its output.
///
/// # Panics
/// When the script fails, with its standard error.
pub fn run(script: &str, args: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(script);
    let output = Command::new(interpreter())
        .arg(&script)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    assert!(
        output.status.success(),
        "{} failed: {}",
        script.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("the script prints UTF-8")
}
