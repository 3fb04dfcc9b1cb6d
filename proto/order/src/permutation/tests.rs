use super::*;

/// Keys as a pass makes them: hashes of a counter.
fn key(n: u64) -> u128 {
    xxhash_rust::xxh3::xxh3_128(&n.to_le_bytes())
}

fn float(n: u64) -> f64 {
    f64::from(u32::try_from(n).unwrap())
}

/// Standard deviations by which the chi-square of `counts` against equal shares is off.
fn chi_square_z(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let cells = counts.len() as f64;
    let share = float(total) / cells;
    let chi: f64 = counts.iter().map(|&n| (float(n) - share).powi(2) / share).sum();
    let freedom = cells - 1.0;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn is_a_bijection_with_its_inverse_at_short_lengths() {
    for len in (0..2000).chain([4095, 4096, 4097, 8191, 8192, 20_011]) {
        let permutation = Permutation::new(len, key(len));
        let mut seen = vec![false; usize::try_from(len).unwrap()];
        for index in 0..len {
            let element = permutation.at(index);
            let seen = &mut seen[usize::try_from(element).unwrap()];
            assert!(!*seen, "length {len} repeats {element}");
            *seen = true;
            assert_eq!(permutation.position_of(element), index);
        }
    }
}

#[test]
fn inverts_at_any_length_up_to_the_largest() {
    let mut random = fastrand::Rng::with_seed(1);
    let edges = (1..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1_u64]);
    for len in edges.chain([u64::MAX - 1, u64::MAX]) {
        let permutation = Permutation::new(len, random.u128(..));
        for _ in 0..20 {
            let index = random.u64(..len);
            let element = permutation.at(index);
            assert!(element < len);
            assert_eq!(permutation.position_of(element), index, "length {len}");
        }
    }
}

#[test]
#[should_panic(expected = "place 7 of a permutation of 7")]
fn index_past_the_end_is_refused() {
    let _ = Permutation::new(7, 0).at(7);
}

#[test]
fn average_walk_has_under_four_steps_at_the_worst_length() {
    for bits in 1..30 {
        let len = (1 << bits) + 1;
        let permutation = Permutation::new(len, key(bits));
        let (mut walks, mut steps) = (0, 0);
        for index in (0..len).step_by(usize::try_from(len / 1000 + 1).unwrap()) {
            walks += 1;
            let mut x = index;
            loop {
                steps += 1;
                x = permutation.forward(x);
                if x < len {
                    break;
                }
            }
        }
        assert!(steps < 4 * walks, "length {len}: {steps} steps for {walks} walks");
    }
}

/// Which of the `len!` orders a permutation is (Lehmer code).
fn rank(permutation: &Permutation) -> usize {
    let elements: Vec<_> = (0..permutation.len()).map(|i| permutation.at(i)).collect();
    elements.iter().enumerate().fold(0, |rank, (i, element)| {
        rank * (elements.len() - i) + elements[i + 1..].iter().filter(|&e| e < element).count()
    })
}

#[test]
fn every_order_of_a_few_elements_is_equally_likely() {
    for (len, orders) in [(2, 2), (3, 6), (4, 24), (5, 120), (6, 720), (7, 5040)] {
        let mut counts = vec![0; orders];
        for n in 0..200_000 {
            counts[rank(&Permutation::new(len, key(n)))] += 1;
        }
        let z = chi_square_z(&counts);
        assert!(z.abs() < 5.0, "orders of {len} elements are off by {z:.1} sigma");
    }
}

#[test]
fn every_index_gets_every_element_equally_often() {
    for len in [8, 10, 16, 17, 63, 64, 100, 257, 1000, 65_536, 70_001] {
        for place in [0, 1, len / 2, len - 1] {
            let cells = len.min(250);
            let mut counts = vec![0; usize::try_from(cells).unwrap()];
            for n in 0..100_000 {
                let element = Permutation::new(len, key(n)).at(place);
                counts[usize::try_from(
                    u128::from(element) * u128::from(cells) / u128::from(len),
                )
                .unwrap()] += 1;
            }
            // Cells of unequal numbers of elements are compared only where the length divides.
            if len % cells == 0 || len > 50 * cells {
                let z = chi_square_z(&counts);
                assert!(z.abs() < 5.0, "length {len}, place {place}: off by {z:.1} sigma");
            }
        }
    }
}

#[test]
fn adjacent_elements_are_independent_as_in_a_fair_shuffle() {
    for len in [16, 24, 40] {
        let mut counts = vec![0; usize::try_from(len * (len - 1)).unwrap()];
        for n in 0..200_000 {
            let permutation = Permutation::new(len, key(n));
            let (a, b) = (permutation.at(0), permutation.at(1));
            let b = if b > a { b - 1 } else { b };
            counts[usize::try_from(a * (len - 1) + b).unwrap()] += 1;
        }
        let z = chi_square_z(&counts);
        assert!(z.abs() < 5.0, "length {len}: off by {z:.1} sigma");
    }
}

#[test]
fn neighbouring_elements_are_not_correlated() {
    for len in [1000, 4096, 50_000, 65_536, 1 << 20, 1_000_003, (1 << 40) + 5] {
        for step in [1, 2, 64, len / 2] {
            let permutation = Permutation::new(len, key(len + step));
            let places = 50_000.min(len - step);
            let centred = |i| permutation.at(i) as f64 / len as f64 - 0.5;
            let covariance: f64 = (0..places).map(|i| centred(i) * centred(i + step)).sum();
            // Products of two uniform variables have variance 1/144.
            let z = covariance / (places as f64 / 144.0).sqrt();
            assert!(z.abs() < 5.0, "length {len}, step {step}: off by {z:.1} sigma");
        }
    }
}

#[test]
fn differences_of_neighbours_do_not_repeat_a_pattern() {
    for len in [1 << 13, 1 << 16, 1 << 17, 1 << 20, 1 << 33] {
        for step in [1, 2, 256, len / 2] {
            let permutation = Permutation::new(len, key(len ^ step));
            let mut counts = vec![0; 256];
            for i in 0..60_000.min(len - step) {
                let difference = permutation.at(i) ^ permutation.at(i + step);
                counts[usize::try_from(difference % 256).unwrap()] += 1;
            }
            let z = chi_square_z(&counts);
            assert!(z.abs() < 6.0, "length {len}, step {step}: off by {z:.1} sigma");
        }
    }
}

#[test]
fn each_bit_of_the_key_changes_the_whole_order() {
    let len = 10_000;
    for bit in 0..128 {
        let (a, b) = (Permutation::new(len, key(9)), Permutation::new(len, key(9) ^ (1 << bit)));
        let equal = (0..len).filter(|&i| a.at(i) == b.at(i)).count();
        assert!(equal <= 10, "key bit {bit} leaves {equal} of {len} elements in place");
    }
}

#[test]
fn fixed_points_are_as_rare_as_in_a_fair_shuffle() {
    for len in [7, 100, 1000] {
        let fixed = |n| {
            let permutation = Permutation::new(len, key(n));
            (0..len).filter(|&i| permutation.at(i) == i).count()
        };
        let total: usize = (0..10_000).map(fixed).sum();
        // One a permutation, with variance one: 10,000 of them stray by 100.
        assert!((9_500..10_500).contains(&total), "{total} fixed points in 10,000 orders of {len}");
    }
}
