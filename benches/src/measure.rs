//! Rounds that alternate between contenders, medians, and the CPU time of a process.

use std::time::Duration;

/// What one contender did in one round.
#[derive(Debug, Clone, Copy, Default)]
pub struct Round {
    /// Payload moved.
    pub bytes: u64,
    /// Wall time.
    pub wall: Duration,
    /// CPU time of the asking process.
    pub client_cpu: Duration,
    /// CPU time of the serving process; zero when there is none.
    pub server_cpu: Duration,
}

impl Round {
    fn gib(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let gib = self.bytes as f64 / f64::from(1 << 30);
        gib
    }

    /// GiB per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.gib() / self.wall.as_secs_f64()
    }

    /// CPU seconds per GiB: client, server.
    #[must_use]
    pub fn cpu(&self) -> (f64, f64) {
        (self.client_cpu.as_secs_f64() / self.gib(), self.server_cpu.as_secs_f64() / self.gib())
    }
}

/// The middle value; of an even number the upper middle.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// CPU time that a process and its threads have used so far, from `/proc` in nanoseconds.
#[must_use]
pub fn cpu_of(pid: u32) -> Duration {
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
pub fn alternate<E>(
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
