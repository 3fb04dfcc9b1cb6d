//! Shows one node on a page.

use std::time::Duration;

use super::NodeReport;
use crate::output::{Page, Report, units};

impl Report for NodeReport {
    fn show(&self, page: &mut Page) {
        let uptime = units::duration(Duration::from_secs_f64(self.uptime_seconds));
        let state = if self.draining { "draining" } else { "up" };
        page.fields(&[
            ("node", format!("{} on {}, version {}", self.node, self.host, self.version)),
            ("state", format!("{state} for {uptime}")),
            ("control", self.control.clone()),
            ("data", self.data.clone()),
            ("socket", self.socket.clone()),
            ("origins", self.origins.join(", ")),
            ("ring", format!("version {}, digest {}", self.ring_version, self.ring_digest)),
        ]);
        self.show_memory(page);
        self.show_work(page);
        self.show_failures(page);
    }
}

impl NodeReport {
    fn show_memory(&self, page: &mut Page) {
        let memory = &self.memory;
        page.heading("Memory");
        let budget =
            format!("{}, from {}", units::bytes(memory.budget_bytes), memory.budget_source);
        let resident = units::counted(self.shards.resident, "shard");
        let waiting = format!("{} filling, {} queued", self.shards.filling, self.shards.queued);
        page.fields(&[
            ("budget", budget),
            ("resident", format!("{} in {resident}", units::bytes(memory.resident_bytes))),
            ("filling", format!("{} ({waiting})", units::bytes(memory.filling_bytes))),
            (
                "orphaned",
                format!(
                    "{} in {} that clients still map",
                    units::bytes(memory.orphaned_bytes),
                    units::counted(self.shards.orphaned, "shard"),
                ),
            ),
            ("pages", units::bytes(memory.page_size_bytes)),
        ]);
    }

    fn show_work(&self, page: &mut Page) {
        let (load, sums) = (&self.load, &self.counters);
        page.heading("Now");
        page.fields(&[
            (
                "clients",
                format!(
                    "{} on the socket, {} over TCP, {}",
                    load.socket_connections,
                    load.data_connections,
                    units::counted(load.tickets.into(), "ticket"),
                ),
            ),
            ("leases", units::count(load.leases)),
            ("gathers", units::count(load.gathers.into())),
        ]);
        page.heading("Since its start");
        page.fields(&[
            (
                "gathers",
                format!(
                    "{}, {} rows from memory, {} from the origin, {} sent",
                    units::count(sums.gathers),
                    units::count(sums.rows_memory),
                    units::count(sums.rows_origin),
                    units::bytes(sums.sent_bytes),
                ),
            ),
            ("attaches", format!("{}, {} recalled", units::count(sums.attaches), sums.recalls)),
            (
                "fills",
                format!(
                    "{} done, {} gave up",
                    units::count(sums.fills_completed),
                    units::count(sums.fills_failed),
                ),
            ),
            (
                "origin",
                format!(
                    "{}, {}, {} retried",
                    units::counted(sums.origin_requests, "request"),
                    units::bytes(sums.origin_bytes),
                    units::count(sums.origin_retries),
                ),
            ),
            (
                "evicted",
                format!(
                    "{}, {}",
                    units::counted(sums.evicted_shards, "shard"),
                    units::bytes(sums.evicted_bytes),
                ),
            ),
        ]);
    }

    fn show_failures(&self, page: &mut Page) {
        if self.failures.total == 0 {
            return;
        }
        page.heading(&format!("Fills that gave up ({})", units::count(self.failures.total)));
        for one in &self.failures.latest {
            let age = units::duration(Duration::from_secs_f64(one.age_seconds));
            let tries = units::counted(one.tries.into(), "try").replace("trys", "tries");
            page.line(&format!("shard {} {age} ago after {tries}: {}", one.shard, one.message));
        }
    }
}
