//! The jobs that read, as nodes know them from their read plans.

use std::collections::HashSet;
use std::time::Duration;

use larder_client::admin::{MemberAnswer, NodeDescription, ReadJob};

use crate::output::{Page, TextTable, units};

/// Returns the jobs of a cluster. Nodes pass plans on, so the node that knows the most knows all.
///
/// A job is set aside if any node sets it aside: each node judges by its own shards.
pub(super) fn of_cluster(answers: Vec<MemberAnswer<NodeDescription>>) -> Vec<ReadJob> {
    let said = answers.into_iter().filter_map(|answer| answer.answer.ok());
    let lists: Vec<Vec<ReadJob>> = said.map(|said| said.read_jobs).collect();
    let doubted = lists.iter().flatten().filter(|job| job.set_aside);
    let doubted: HashSet<_> = doubted.map(|job| job.snapshot.clone()).collect();
    let loaders = |jobs: &Vec<ReadJob>| jobs.iter().map(|job| u64::from(job.loaders)).sum::<u64>();
    let mut jobs = lists.into_iter().max_by_key(loaders).unwrap_or_default();
    for job in &mut jobs {
        job.set_aside = doubted.contains(&job.snapshot);
    }
    jobs
}

/// Shows jobs under a heading, one a line. Shows nothing if there are none.
pub(super) fn show(page: &mut Page, jobs: &[ReadJob]) {
    if jobs.is_empty() {
        return;
    }
    page.heading("Jobs that read");
    let mut table = TextTable::new("JOB | DATASET | >PASS | >WINDOW | PACE | >LOADERS");
    for job in jobs {
        // From the number of windows on, they count in the next pass.
        let window = u64::from(job.slowest_window.min(job.windows.saturating_sub(1))) + 1;
        table.row([
            if job.job.is_empty() { "(no name)".to_owned() } else { job.job.clone() },
            if job.uri.is_empty() { "(not open there)".to_owned() } else { job.uri.clone() },
            units::count(job.pass),
            format!("{window}/{}", job.windows),
            pace(job),
            job.loaders.to_string(),
        ]);
    }
    page.table(&table);
}

fn pace(job: &ReadJob) -> String {
    let pace = match job.rate {
        Some(rate) if rate > 0.0 => {
            format!("{} a window", units::duration(Duration::from_secs_f64(1.0 / rate)))
        }
        _ => "not known yet".to_owned(),
    };
    if job.set_aside { format!("{pace}; not followed, so not used for now") } else { pace }
}
