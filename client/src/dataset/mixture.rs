//! One dataset, or several mixed in fixed proportions, as the data of a loader.
//!
//! Thread rule: cheap to clone and to share. It reads nothing itself. Non-goals: single samples of
//! a mixture (read them from its datasets), and weights that change during an epoch.

use std::sync::Arc;

use crate::{
    Dataset, Error, ErrorKind, LoaderBuilder, Locality,
    loader::common_tensors,
    sampler::{self, Stop, View},
};

/// Several datasets, each with a share of every batch.
///
/// An epoch draws a fixed number of samples from each dataset, as set by [`Stop`]. A used-up
/// dataset begins anew in another order, and continues at its position in the next epoch. So over
/// any length of training, the counts of its samples differ by at most one. The state of its loader
/// is as small as that of a single dataset, and resumes at any world size.
///
/// ```no_run
/// use larder_client::{Dataset, Mixture, sampler::Stop};
///
/// let web = Dataset::open("s3://data/web", None)?;
/// let code = Dataset::open("s3://data/code", None)?;
/// let mixture = Mixture::new([(web, 0.7), (code, 0.3)], 0, Stop::First)?;
/// let mut loader = mixture.loader().batch_size(256).build()?;
/// for batch in loader.epoch(0)? {
///     let batch = batch?;
///     let datasets = batch.datasets().expect("a mixture"); // 0 or 1 for each row
///     assert_eq!(datasets.len(), batch.len());
/// }
/// # Ok::<(), larder_client::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Mixture {
    datasets: Arc<[Dataset]>,
    mixture: sampler::Mixture,
}

impl Mixture {
    /// Mixes `datasets` by weight. The share of a dataset is its weight divided by the sum of all.
    /// `seed` chooses among the equally even ways to interleave them.
    ///
    /// The datasets must have a tensor in common, with the same name, elements and shape. By
    /// default a loader has all tensors in common.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid weights (see [`sampler::Mixture::new`]), and for datasets
    /// without a common tensor.
    pub fn new(
        datasets: impl IntoIterator<Item = (Dataset, f64)>,
        seed: u64,
        stop: Stop,
    ) -> Result<Self, Error> {
        let (datasets, weights): (Vec<Dataset>, Vec<f64>) = datasets.into_iter().unzip();
        let views: Vec<View> = datasets.iter().map(|dataset| dataset.view().clone()).collect();
        let mixture =
            sampler::Mixture::new(views.into_iter().zip(weights), seed, stop).map_err(|error| {
                Error::new(ErrorKind::InvalidArgument, "cannot mix").with_source(error)
            })?;
        let mut manifests = datasets.iter().map(Dataset::manifest);
        let first = manifests.next().expect("a mixture has a source");
        common_tensors(first, manifests)?;
        Ok(Self { datasets: datasets.into(), mixture })
    }

    /// The number of samples in an epoch.
    pub fn samples(&self) -> u64 {
        self.mixture.len()
    }

    /// The datasets, in the order of their numbers in batches.
    pub fn datasets(&self) -> &[Dataset] {
        &self.datasets
    }

    /// The number of samples that an epoch draws from each dataset.
    pub fn draws(&self) -> impl ExactSizeIterator<Item = u64> {
        self.mixture.draws()
    }

    /// A builder of a loader; see [`Loader`](crate::Loader). Its shuffle applies within each
    /// dataset.
    pub fn loader(&self) -> LoaderBuilder {
        let sources = self.datasets.iter().map(Dataset::source).collect();
        LoaderBuilder::new(sources, self.mixture.clone())
    }

    /// As [`Dataset::locality`], for all datasets of the mixture.
    ///
    /// # Errors
    /// As [`Dataset::locality`].
    pub fn locality(&self, ranks: &[Vec<String>]) -> Result<Locality, Error> {
        let fetchers: Vec<_> = self.datasets().iter().map(|dataset| &**dataset.fetcher()).collect();
        Locality::of(&fetchers, ranks)
    }

    /// As [`Dataset::nodes_here`], for all clusters of the mixture.
    pub fn nodes_here(&self) -> Vec<String> {
        let mut nodes: Vec<_> = self.datasets().iter().flat_map(Dataset::nodes_here).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// One dataset that is not mixed, in its own order. A [`Mixture::new`] of one dataset has another
/// order, in which passes go on from one epoch to the next.
impl From<Dataset> for Mixture {
    fn from(dataset: Dataset) -> Self {
        let mixture = sampler::Mixture::single(dataset.view().clone());
        Self { datasets: Arc::new([dataset]), mixture }
    }
}
