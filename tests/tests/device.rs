//! The contract of a device with the loader: one suite over all drivers.
//!
//! A process loads the driver's library once, so each case is a child process: this program again,
//! told by the environment which case it is. Over the stand-in for the CUDA driver the child also
//! writes a report. A case passes when its bytes are right, the report has no mistake, and nothing
//! is left.
//!
//! With `LARDER_REAL_GPU=1` the cases also run over the GPU of this host.

#[path = "device/cases.rs"]
mod cases;
#[path = "device/child.rs"]
mod child;
#[path = "device/failures.rs"]
mod failures;
#[path = "device/nodes.rs"]
mod nodes;
#[path = "device/training.rs"]
mod training;

use std::process::Command;

use child::{Over, run};
use larder_tests::node::binary;
use nix::sys::signal::Signal;

/// The child's end of every test.
#[test]
fn child() {
    if let Ok(case) = std::env::var(child::CASE) {
        cases::run(&case);
    }
}

macro_rules! contract {
    ($($case:ident)*) => {
        const CASES: &[&str] = &[$(stringify!($case)),*];

        mod over_host {
            $(#[test] fn $case() { super::run(stringify!($case), super::Over::Host).passes(); })*
        }

        mod over_the_standin {
            $(#[test] fn $case() { super::run(stringify!($case), super::Over::StandIn(&[])).passes(); })*
        }
    };
}

contract! {
    sent_bytes_arrive
    a_buffer_is_used_again_after_its_copy
    a_block_is_used_again_after_its_reader
    a_block_is_used_again_after_its_writer
    page_locked_memory_is_bounded
    threads_send_side_by_side
    a_slice_dropped_under_its_copy_is_parked
    a_pump_dropped_under_copies_is_parked
    parts_of_an_extent_arrive
    an_extent_dropped_under_a_copy_is_held
    a_given_block_is_held_until_it_is_written
    a_given_block_goes_back_once_its_streams_wait
    an_epoch_arrives_from_the_origin
}

#[test]
fn all_cases_pass_over_a_gpu_if_requested() {
    if std::env::var_os("LARDER_REAL_GPU").is_none() {
        println!("not run over a GPU: LARDER_REAL_GPU is not set");
        return;
    }
    CASES.iter().for_each(|case| run(case, Over::Gpu).passes());
}

/// Each planted mistake, the case that meets it, and the mistake that the stand-in names. Where it
/// names none, the process dies at the instruction that makes the mistake.
const PLANTED: &[(&str, &str, Option<&str>)] = &[
    (
        "no consumer wait",
        "a_block_is_used_again_after_its_reader",
        Some("read before its write is done"),
    ),
    (
        "block reused early",
        "a_block_is_used_again_after_its_writer",
        Some("written before its write is done"),
    ),
    ("buffer rewritten early", "a_buffer_is_used_again_after_its_copy", None),
    (
        "lease ended at queueing",
        "an_extent_dropped_under_a_copy_is_held",
        Some("unmapped under a copy"),
    ),
    (
        "unregistered early",
        "an_extent_dropped_under_a_copy_is_held",
        Some("unregistered under a copy"),
    ),
    (
        "is_complete polled",
        "a_lost_device_ends_every_wait",
        Some("polled after the device was lost"),
    ),
];

macro_rules! planted {
    ($($name:ident $index:literal)*) => {
        mod finds_when_planted {
            $(#[test] fn $name() { super::finds($index); })*
        }
    };
}

planted! {
    no_consumer_wait 0
    block_reused_early 1
    buffer_rewritten_early 2
    lease_ended_at_queueing 3
    unregistered_early 4
    is_complete_polled 5
}

fn finds(index: usize) {
    let (mistake, case, named) = PLANTED[index];
    // ShardCopies are slow, so that the mistake comes before they are done. On a busy machine it
    // takes slower ones. The device is lost while a thread waits for a buffer, which the driver
    // sees as many queries of one event.
    let tries = [("20000", "20"), ("100000", "40"), ("500000", "80")];
    let mut seen = tries.into_iter().map(|(delay, query)| {
        let lost = format!("cuEventQuery:719@{query}");
        let mut settings = vec![(child::PLANTED, mistake), ("STANDIN_DELAY_US", delay)];
        if mistake == "is_complete polled" {
            settings.push(("STANDIN_FAIL", &lost));
        }
        let outcome = run(case, Over::StandIn(&settings));
        let found = match named {
            Some(named) => outcome.mistakes().contains(&named),
            None => outcome.signal() == Some(Signal::SIGSEGV as i32),
        };
        (found, outcome)
    });
    let last = seen.find(|(found, _)| *found);
    assert!(last.is_some(), "{mistake} is not found by {case}");
}

#[test]
fn a_loader_of_two_threads_page_locks_four_buffers_at_most() {
    let outcome = run("page_locked_memory_is_bounded", Over::StandIn(&[]));
    outcome.passes();
    assert_eq!(outcome.count("pinned_bytes_max"), 4 << 16, "{outcome:?}");
}

#[test]
fn a_lost_device_ends_every_wait() {
    for fail in ["cuEventQuery:719@3", "cuMemcpyHtoDAsync_v2:700@5", "cuEventRecord:999@5"] {
        let outcome =
            run("a_lost_device_ends_every_wait", Over::StandIn(&[("STANDIN_FAIL", fail)]));
        outcome.succeeds();
        assert_eq!(outcome.mistakes(), Vec::<&str>::new(), "{outcome:?}");
        assert!(outcome.left("device_allocations") > 0, "nothing is freed: {outcome:?}");
    }
}

#[test]
fn a_driver_without_batched_copies_copies_one_by_one() {
    let outcome = run("parts_of_an_extent_arrive", Over::StandIn(&[("STANDIN_VERSION", "12000")]));
    outcome.passes();
    assert_eq!(outcome.count("batched_copies"), 0, "{outcome:?}");
    let newer = run("parts_of_an_extent_arrive", Over::StandIn(&[]));
    assert!(newer.count("batched_copies") > 0, "{newer:?}");
}

#[test]
fn refused_page_registration_fails_direct_copies() {
    for settings in [("STANDIN_READ_ONLY", "0"), ("STANDIN_FAIL", "cuMemHostRegister_v2:712")] {
        run("refused_pages", Over::StandIn(&[settings])).passes();
    }
}

#[test]
fn every_driver_problem_is_an_error_with_a_remedy() {
    run("no_driver", Over::Nothing).succeeds();
    run("a_stub", Over::StandIn(&[("STANDIN_STUB", "1")])).succeeds();
    run("too_old", Over::StandIn(&[("STANDIN_VERSION", "11040")])).succeeds();
    run("no_such_device", Over::StandIn(&[("STANDIN_DEVICES", "2")])).succeeds();
    run("no_device", Over::StandIn(&[("STANDIN_DEVICES", "0")])).succeeds();
    run("no_memory", Over::StandIn(&[("STANDIN_MEMORY", "1000000")])).succeeds();
    run("not_a_library", Over::Rubbish).succeeds();
}

#[test]
fn waits_for_memory_of_a_full_device_while_copies_run() {
    let settings = [("STANDIN_MEMORY", "1000000"), ("STANDIN_DELAY_US", "20000")];
    run("a_full_device", Over::StandIn(&settings)).passes();
}

#[test]
fn doctor_lists_gpus_and_whether_they_register_pages() {
    let found = |settings: &[(&str, &str)]| {
        let (child, _folder) = child::command("", Over::StandIn(settings));
        let mut doctor = Command::new(binary("larder"));
        doctor.arg("doctor").env_remove("LARDER_CLUSTER");
        doctor.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = doctor.output().expect("larder doctor runs");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        said.lines().find(|line| line.contains(" GPU ")).expect("a line on GPUs").to_owned()
    };
    let gpu = found(&[]);
    assert!(gpu.starts_with("ok ") && gpu.contains("cuda:0 is Stand-in, 1.0 GiB"), "{gpu}");
    assert!(gpu.ends_with("driver for CUDA 12.8; registers pages of the cache"), "{gpu}");
    let refused = found(&[("STANDIN_READ_ONLY", "0")]);
    assert!(refused.contains("refused to register pages of the cache"), "{refused}");
    assert!(found(&[("STANDIN_DEVICES", "0")]).starts_with("ok "), "no GPU is no failure");
    assert!(found(&[("STANDIN_VERSION", "11040")]).contains("CUDA 12.0 or later is needed"));
}

#[test]
fn example_for_gpus_runs_over_the_standin() {
    let data = tempfile::tempdir().expect("a folder");
    larder_tests::write_npy(&data.path().join("all.npy"), 96);
    let (child, folder) = child::command("", Over::StandIn(&[]));
    let mut example = Command::new(binary("examples/gpu"));
    example.arg(format!("file://{}", data.path().display())).env_remove("LARDER_CLUSTER");
    example.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = example.output().expect("the example runs");
    let output = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    assert_eq!(output.matches("samples [").count(), 3, "three batches of 32: {output}");
    let outcome = child::outcome("the example", ended.status, output, folder.path());
    outcome.succeeds();
    assert_eq!(outcome.mistakes(), Vec::<&str>::new(), "{outcome:?}");
    assert_eq!(outcome.count("copies"), 3, "{outcome:?}");
}

#[test]
fn two_devices_are_used_side_by_side() {
    run("two_devices", Over::StandIn(&[("STANDIN_DEVICES", "2")])).passes();
}
