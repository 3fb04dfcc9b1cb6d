//! Rounds that alternate between contenders, medians, and the CPU time of a process.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// The figures of one contender in one round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Round {
    /// Payload moved.
    pub(crate) bytes: u64,
    /// Wall time.
    pub(crate) wall: Duration,
    /// CPU time of the asking process.
    pub(crate) client_cpu: Duration,
    /// CPU time of the serving process; zero without one.
    pub(crate) server_cpu: Duration,
    /// CPU time of the origin behind it; zero without one.
    pub(crate) origin_cpu: Duration,
}

impl Round {
    pub(crate) fn gib(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let gib = self.bytes as f64 / f64::from(1 << 30);
        gib
    }

    /// GiB per second.
    pub(crate) fn rate(&self) -> f64 {
        self.gib() / self.wall.as_secs_f64()
    }

    /// CPU seconds per GiB: client, server, origin.
    pub(crate) fn cpu(&self) -> [f64; 3] {
        [self.client_cpu, self.server_cpu, self.origin_cpu]
            .map(|cpu| cpu.as_secs_f64() / self.gib())
    }
}

/// A running round: the clocks at its begin.
pub(crate) struct Begun {
    wall: Instant,
    client_cpu: Duration,
    server: Option<(u32, Duration)>,
    origin: Option<(u32, Duration)>,
}

/// Begins a round; `server` is the process that serves it.
pub(crate) fn begin(server: Option<u32>) -> Begun {
    let server = server.map(|pid| (pid, cpu_of(pid)));
    Begun { client_cpu: own_cpu(), server, origin: None, wall: now() }
}

/// Begins a round that reads from the origin; `origin` is its process.
pub(crate) fn begin_over(server: Option<u32>, origin: u32) -> Begun {
    Begun { origin: Some((origin, cpu_of(origin))), ..begin(server) }
}

impl Begun {
    /// The time since its begin.
    pub(crate) fn so_far(&self) -> Duration {
        self.wall.elapsed()
    }

    /// Ends the round after `bytes` of payload.
    pub(crate) fn end(self, bytes: usize) -> Round {
        Round {
            bytes: bytes as u64,
            wall: self.wall.elapsed(),
            client_cpu: own_cpu().saturating_sub(self.client_cpu),
            server_cpu: used_since(self.server),
            origin_cpu: used_since(self.origin),
        }
    }
}

fn used_since(process: Option<(u32, Duration)>) -> Duration {
    process.map_or(Duration::ZERO, |(pid, before)| cpu_of(pid).saturating_sub(before))
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "the one clock of the benchmarks")]
    Instant::now()
}

/// Runs some work. Returns its seconds and its result.
pub(crate) fn seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let begun = now();
    let result = work();
    (begun.elapsed().as_secs_f64(), result)
}

/// CPU time of this process, including ended threads.
fn own_cpu() -> Duration {
    let used = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask about itself");
    let micros = |time: nix::sys::time::TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    micros(used.user_time()) + micros(used.system_time())
}

/// The middle value; the upper one of two middle values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// CPU time that a process and its threads have used so far, from `/proc` in nanoseconds.
pub(crate) fn cpu_of(pid: u32) -> Duration {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let nanos = tasks.flatten().filter_map(|task| {
        let schedstat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Runs every contender once to warm up and then `rounds` times in turn: A B A B ...
///
/// # Errors
/// The first error of a contender.
pub(crate) fn alternate<E>(
    rounds: usize,
    contenders: &mut [&mut dyn FnMut() -> Result<Round, E>],
) -> Result<Vec<Vec<Round>>, E> {
    for contender in contenders.iter_mut() {
        contender()?;
    }
    let mut results = vec![Vec::with_capacity(rounds); contenders.len()];
    for _ in 0..rounds {
        for (contender, results) in contenders.iter_mut().zip(&mut results) {
            results.push(contender()?);
        }
    }
    Ok(results)
}
