use super::*;
use crate::{DatasetShape, Shuffle, View};

#[test]
fn job_of_a_single_view_has_the_order_and_digest_of_the_view() {
    let view = View::all([7; 32], DatasetShape::from_rows([9, 1, 20, 13]).unwrap());
    for view in [view.clone(), view.select(4..31).unwrap()] {
        let mixture = Mixture::single(view.clone());
        for shuffle in ["none", "window:2", "global"] {
            let pass_id = mixture.pass_id(5, 3, shuffle.parse().unwrap());
            assert_eq!(pass_id, PassId::new(&view, 5, 3, pass_id.shuffle()));
            let (job, order) =
                (JobOrder::new(pass_id, &mixture).unwrap(), Order::new(pass_id, &view).unwrap());
            let (mut draws, mut samples) = (Draws::new(pass_id), Vec::new());
            job.fill(2..job.len(), &mut draws);
            order.fill(2..order.len(), &mut samples);
            assert_eq!(draws.samples(), samples);
            assert_eq!((draws.sources(), draws.passes()), (None, None));
            assert_eq!((draws.at(1), draws.pass(1)), ((0, samples[1]), 3));
            assert_eq!(job.digest(2..job.len()), EpochDigest::of_samples(pass_id, samples));
            assert_eq!(job.digest(0..job.len()), EpochDigest::of_samples(pass_id, view.samples()));
            for position in [0, 9, job.len()] {
                assert_eq!(job.places(position), [SourcePlace { pass: 3, position }]);
            }
        }
    }
}

#[test]
fn job_of_an_empty_view_has_no_position() {
    let view = View::all([7; 32], DatasetShape::from_rows([9]).unwrap()).select(0..0).unwrap();
    let mixture = Mixture::single(view);
    let pass_id = mixture.pass_id(1, 2, Shuffle::Window { shards: std::num::NonZeroU32::MIN });
    let job = JobOrder::new(pass_id, &mixture).unwrap();
    job.fill(0..0, &mut Draws::new(pass_id));
    assert!(job.is_empty() && mixture.is_empty());
    assert_eq!(job.places(0), [SourcePlace { pass: 2, position: 0 }]);
    assert_eq!(job.digest(0..0), EpochDigest::new(pass_id));
}
