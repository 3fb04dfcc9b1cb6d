//! Pictures per CPU-second of one thread, for a folder of pictures and rows of 224 x 224:
//!
//! ```text
//! python benches/decode/rates.py make /tmp/pictures
//! cargo run --release -p larder-decode --example rates -- /tmp/pictures/small
//! python benches/decode/rates.py measure /tmp/pictures/small
//! ```
//!
//! Prints the best of five rounds for each crop, as neighbours on a shared machine only slow it
//! down. Thread rule: one thread. Non-goals: reading files, which happens before the clock starts.

#![expect(clippy::unwrap_used, reason = "a tool for developers")]

use larder_decode::{Crop, Draw, Image, Scratch};

const ROUNDS: usize = 5;

/// CPU-seconds of this process (Linux).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn main() {
    let folder = std::env::args().nth(1).expect("a folder of pictures");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<Vec<u8>> = paths.map(|path| std::fs::read(path).unwrap()).collect();
    let mut scratch = Scratch::default();
    for (name, crop) in [("center", Crop::Center { part: 1.0 }), ("random", Crop::RANDOM)] {
        let image = Image::new(224, 224, crop).unwrap();
        let mut row = vec![0; image.bytes()];
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let start = cpu_seconds();
            for (sample, file) in (0..).zip(&files) {
                let draw = Draw { seed: 0, source: 0, pass: 0, sample };
                image.decode_into(file, draw, &mut row, &mut scratch).unwrap();
            }
            best = best.min(cpu_seconds() - start);
        }
        println!("larder {name}: {:.1} pictures per CPU-second", files.len() as f64 / best);
    }
}
