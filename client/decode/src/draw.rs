//! Random numbers by counter (decision 0012): a pure function of seed, dataset, pass and sample.
//!
//! They are blocks of Philox4x64-10 (J. Salmon, M. Moraes, R. Dror and D. Shaw, *Parallel Random
//! Numbers: As Easy as 1, 2, 3*, SC 2011), as numpy's `Philox` gives them. Transforms in Python
//! draw from the same generator under another key.
//!
//! Thread rule: plain data. Non-goals: secrets, and streams for more than one sample.

/// The use of the numbers: the second word of the key. Transforms in Python have 0 and 1.
const DECODING: u64 = 2;

const ROUNDS: usize = 10;
const MULTIPLIERS: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
const WEYL: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];

/// Names one sample of a job. A resumed run draws the same crops.
///
/// All pictures of a sample draw the same numbers. Two pictures of one size, such as an image and
/// its mask, so get the same crop and flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Draw {
    /// The seed of the job.
    pub seed: u64,
    /// The dataset's index in a mixture, else 0.
    pub source: u64,
    /// Earlier passes over the dataset. It equals the epoch, except in a mixture.
    pub pass: u64,
    /// The sample, as the dataset counts it.
    pub sample: u64,
}

impl Draw {
    /// The sample's numbers, from the first one.
    pub(crate) fn numbers(self) -> Numbers {
        let key = [self.seed, DECODING];
        let counter = [0, self.source, self.pass, self.sample];
        Numbers { key, counter, block: [0; 4], used: 4 }
    }
}

/// The stream of one sample.
#[derive(Debug)]
pub(crate) struct Numbers {
    key: [u64; 2],
    counter: [u64; 4],
    block: [u64; 4],
    used: usize,
}

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        if self.used == self.block.len() {
            self.counter[0] += 1;
            self.block = philox(self.counter, self.key);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// Evenly from `low..=high`.
    pub(crate) fn uniform(&mut self, (low, high): (f64, f64)) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low) * unit
    }

    /// Evenly from `0..=most`, but for a bias below 2^-32.
    pub(crate) fn at_most(&mut self, most: u32) -> u32 {
        let product = u128::from(self.next()) * (u128::from(most) + 1);
        u32::try_from(product >> 64).expect("at most `most`")
    }
}

fn philox(mut counter: [u64; 4], mut key: [u64; 2]) -> [u64; 4] {
    for _ in 0..ROUNDS {
        let [low, high] = product(MULTIPLIERS[0], counter[0]);
        let [other_low, other_high] = product(MULTIPLIERS[1], counter[2]);
        counter = [other_high ^ counter[1] ^ key[0], other_low, high ^ counter[3] ^ key[1], low];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The low and the high word of a product.
#[expect(clippy::cast_possible_truncation, reason = "takes a number apart")]
fn product(a: u64, b: u64) -> [u64; 2] {
    let product = u128::from(a) * u128::from(b);
    [product as u64, (product >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_equal_those_of_numpys_philox() {
        // np.random.Philox(key=[42, 2], counter=[0, 1, 3, 1234567]).random_raw(6)
        let draw = Draw { seed: 42, source: 1, pass: 3, sample: 1_234_567 };
        let mut numbers = draw.numbers();
        let found: Vec<u64> = (0..6).map(|_| numbers.next()).collect();
        assert_eq!(found, NUMPY);
    }

    #[test]
    fn ranges_include_both_ends_and_nothing_else() {
        let mut numbers = Draw { seed: 1, source: 0, pass: 0, sample: 0 }.numbers();
        let mut seen = [0; 3];
        for _ in 0..300 {
            seen[numbers.at_most(2) as usize] += 1;
            assert!((2.0..=3.0).contains(&numbers.uniform((2.0, 3.0))));
            assert_eq!(numbers.at_most(0), 0);
        }
        assert!(seen.iter().all(|&count| count > 60), "{seen:?}");
    }

    const NUMPY: [u64; 6] = [
        0x11E6_12AC_4BE1_D4B6,
        0x5744_08DE_ED0D_F605,
        0xE164_70F3_B991_E4B7,
        0xA4BB_0F8C_007A_919A,
        0x6603_7E81_CEBD_8F71,
        0xE612_9A2E_A7FD_1E38,
    ];
}
