//! garage, an independent S3 server, as a child process. It shows that Larder speaks S3 and not the
//! dialect of one library. It also serves cold benchmarks, as the server in process is too slow.
//!
//! Nothing here builds it: `make test-full` and `make bench-cold` do, `make test` never. It is
//! found by `LARDER_GARAGE`, in `target/tools/bin`, or on the `PATH`. It is only run, never linked.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};

use crate::ports::free_ports;

/// The bucket that is there from the start.
pub const BUCKET: &str = "data";
/// The region it says it is in.
const REGION: &str = "us-east-1";
/// The key that may do everything; garage wants keys of this form.
const ACCESS_KEY: &str = "GKa1a1a1a1a1a1a1a1a1a1a1a1";
/// Its secret.
const SECRET_KEY: &str = "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2";

const RPC_SECRET: &str = "c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3";
/// Looks at a server that starts; with the pause between them a minute.
const START_LOOKS: u32 = 600;
const START_PAUSE: Duration = Duration::from_millis(100);

/// A running garage with one bucket, on loopback and in a folder of its own. Killed on drop.
pub struct Garage {
    child: Child,
    endpoint: String,
    _folder: tempfile::TempDir,
}

/// Where the program is.
///
/// # Errors
/// When it is nowhere; says how to get it.
pub fn find() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("LARDER_GARAGE") {
        let named = PathBuf::from(named);
        let missing = || format!("LARDER_GARAGE names {}, which is not there", named.display());
        return if named.is_file() { Ok(named) } else { Err(missing()) };
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/bin");
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::iter::once(root).chain(std::env::split_paths(&folders));
    places.find_map(|folder| Some(folder.join("garage")).filter(|path| path.is_file())).ok_or_else(
        || {
            "garage was not found: `make target/tools/bin/garage` builds it (about 15 minutes on 2 cores), or name it in LARDER_GARAGE"
                .to_owned()
        },
    )
}

impl Garage {
    /// Starts the server with its files under `parent` and waits until its bucket is there.
    /// `wrapper` is a program and its arguments to run it under, such as `taskset -c 1`; it must
    /// become the server, as that does.
    ///
    /// # Errors
    /// When the program is not there, or does not come up within a minute; with the end of its log.
    pub fn start(parent: &Path, wrapper: &[&str]) -> Result<Self, String> {
        let program = find()?;
        let failed = |error: std::io::Error| format!("{}: {error}", program.display());
        let folder = tempfile::Builder::new().prefix("garage-").tempdir_in(parent);
        let folder = folder.map_err(failed)?;
        let [s3, rpc] = free_ports(2)[..] else { unreachable!("two were asked for") };
        let (config, log) = (folder.path().join("garage.toml"), folder.path().join("log"));
        std::fs::write(&config, configuration(folder.path(), s3, rpc)).map_err(failed)?;
        let words = wrapper.iter().map(AsRef::as_ref).chain([program.as_os_str()]);
        let words: Vec<&OsStr> = words.chain(["-c".as_ref(), config.as_os_str()]).collect();
        let child = Command::new(words[0])
            .args(&words[1..])
            .args(["server", "--single-node", "--default-bucket"])
            .env("GARAGE_DEFAULT_ACCESS_KEY", ACCESS_KEY)
            .env("GARAGE_DEFAULT_SECRET_KEY", SECRET_KEY)
            .env("GARAGE_DEFAULT_BUCKET", BUCKET)
            .env("RUST_LOG", "garage=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).map_err(failed)?)
            .spawn();
        let endpoint = format!("http://127.0.0.1:{s3}");
        let mut garage = Self { child: child.map_err(failed)?, endpoint, _folder: folder };
        garage.wait_for_bucket(&program, &config).map_err(|why| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(5).collect();
            format!("{}: {why}; it said: {last:?}", program.display())
        })?;
        Ok(garage)
    }

    fn wait_for_bucket(&mut self, program: &Path, config: &Path) -> Result<(), String> {
        for _ in 0..START_LOOKS {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("it ended with {status}"));
            }
            let mut ask = Command::new(program);
            ask.arg("-c").arg(config).args(["bucket", "info", BUCKET]);
            let there = ask.stdout(Stdio::null()).stderr(Stdio::null()).status();
            if there.is_ok_and(|status| status.success()) {
                return Ok(());
            }
            pause();
        }
        Err("it did not start within a minute".to_owned())
    }

    /// `http://host:port`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A plain client of its bucket, to upload data or to compare Larder with.
    ///
    /// # Errors
    /// When it can't be set up.
    pub fn client(&self) -> object_store::Result<AmazonS3> {
        larder_dataset::install_crypto();
        AmazonS3Builder::new()
            .with_endpoint(&self.endpoint)
            .with_allow_http(true)
            .with_region(REGION)
            .with_bucket_name(BUCKET)
            .with_access_key_id(ACCESS_KEY)
            .with_secret_access_key(SECRET_KEY)
            .build()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The environment that a child process needs to use it.
    #[must_use]
    pub fn env(&self) -> Vec<(String, String)> {
        [
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_REGION", REGION),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}

impl Drop for Garage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "another program starts, and says nothing when it has"
)]
fn pause() {
    std::thread::sleep(START_PAUSE);
}

/// The default configuration without compression: random data has none to gain.
fn configuration(folder: &Path, s3: u16, rpc: u16) -> String {
    let folder = folder.display();
    format!(
        r#"metadata_dir = "{folder}/meta"
data_dir = "{folder}/data"
db_engine = "lmdb"
replication_factor = 1
compression_level = "none"
rpc_bind_addr = "127.0.0.1:{rpc}"
rpc_public_addr = "127.0.0.1:{rpc}"
rpc_secret = "{RPC_SECRET}"

[s3_api]
s3_region = "{REGION}"
api_bind_addr = "127.0.0.1:{s3}"
"#
    )
}
