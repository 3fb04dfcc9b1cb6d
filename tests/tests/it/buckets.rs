//! Buckets of one node do not wait for each other.

use std::process::Command;
use std::thread;
use std::time::Duration;

use larder_client::Dataset;
use larder_origin::{Fault, FaultPlan, Options, S3Server};
use larder_tests::node::binary;
use larder_tests::{NodeOptions, NodeProcess, repeats, until, words};

/// Samples of each bucket. Each is an object and a shard of its own, more than a bucket may fill
/// at once.
const SAMPLES: u32 = 40;
/// Longer than the test.
const STALL: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(60);

fn open(node: &NodeProcess, bucket: &str) -> Dataset {
    let options = Dataset::options().cluster(node.address()).local(false).patience(PATIENCE);
    options.open(&format!("s3://{bucket}/words")).expect("opens")
}

#[test]
fn bucket_that_hangs_stops_no_other() {
    let faults = [Fault::StallBeforeHeaders, Fault::StallInBody];
    for &fault in &faults[..repeats(1, 2)] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        for bucket in ["bad", "good"] {
            let folder = server.create_bucket(bucket).expect("a bucket").join("words");
            words::write(&folder, SAMPLES, 1, 1024);
            let uri = format!("s3://{bucket}/words");
            let args = ["dataset", "index", &uri, "--shard-bytes", "4096"];
            let index = Command::new(binary("larder")).args(args).envs(server.env()).output();
            assert!(index.expect("larder starts").status.success());
        }
        let mut options = NodeOptions::new("a", "s3://bad");
        options.origins.push("s3://good".to_owned());
        options.env = server.env();
        let node = NodeProcess::start(&options);
        // A client waits for few fills at once.
        let bad: Vec<_> = (0..SAMPLES).map(|_| open(&node, "bad")).collect();
        let good = open(&node, "good");
        let plan = FaultPlan::always(fault).keys_containing("bad/words/").stall(STALL);
        server.set_faults(plan.keys_containing(".safetensors"));
        thread::scope(|scope| {
            for (sample, bad) in (0..).zip(&bad) {
                scope.spawn(move || {
                    if let Ok(row) = bad.read(sample, words::TENSOR) {
                        assert!(words::is_right(sample, &row), "wrong bytes in sample {sample}");
                    }
                });
            }
            let counters = || node.describe().counters.expect("counters");
            until("the fills of the bad bucket have begun", || counters().fills_started >= 8);
            let failed = counters().fills_failed;
            for sample in 0..u64::from(SAMPLES) {
                let row = good.read(sample, words::TENSOR).expect("the good bucket is read");
                assert!(words::is_right(sample, &row), "wrong bytes in sample {sample}");
            }
            // Nothing of the bad bucket had to end for that.
            assert_eq!(counters().fills_failed, failed, "{}", fault.name());
            server.clear_faults();
        });
    }
}
