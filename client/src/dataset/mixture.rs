//! Datasets mixed in fixed proportions: what is drawn from which, as one thing to load from.
//!
//! Thread rule: cheap to clone and to share; it reads nothing itself.
//! Non-goals: single samples of a mixture (read them from its datasets); weights that change while
//! an epoch runs.

use std::sync::Arc;

use crate::{
    Dataset, Error, ErrorKind, LoaderBuilder, Locality,
    loader::common_tensors,
    sampler::{self, Stop, View},
};

/// Several datasets of which every batch has its share.
///
/// An epoch draws a fixed number of samples from each dataset; [`Stop`] says how many. A dataset
/// that is used up begins anew in another order, and goes on from where it stands in the next
/// epoch, so that its samples come equally often to within one, however long one trains. A state of
/// its loader is as small as that of a single dataset, and resumes at any world size.
///
/// ```no_run
/// use larder_client::{Dataset, Mixture, sampler::Stop};
///
/// let (web, code) = (Dataset::open("s3://data/web", None)?, Dataset::open("s3://data/code", None)?);
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
    /// A mixture of `datasets`, each with its weight: its share of all samples is its weight
    /// divided by the sum of all. `seed` chooses among the equally even ways to interleave them.
    ///
    /// They need one tensor in common, with the same name, elements and shape. A loader has those
    /// that all have, unless it is told which.
    ///
    /// # Errors
    /// `InvalidArgument` for weights that say no mixture, see [`sampler::Mixture::new`]; and for datasets that have
    /// no tensor in common.
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

    /// Number of samples of an epoch.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.mixture.len()
    }

    /// What is mixed, in the order in which batches number it.
    #[must_use]
    pub fn datasets(&self) -> &[Dataset] {
        &self.datasets
    }

    /// How many samples of each dataset an epoch has.
    pub fn draws(&self) -> impl ExactSizeIterator<Item = u64> {
        self.mixture.draws()
    }

    /// A loader of its batches; see [`Loader`](crate::Loader). `shuffle` is that within each
    /// dataset.
    pub fn loader(&self) -> LoaderBuilder {
        let sources = self.datasets.iter().map(Dataset::source).collect();
        LoaderBuilder::mixed(sources, self.mixture.clone())
    }

    /// As [`Dataset::locality`], for all datasets of the mixture.
    ///
    /// # Errors
    /// As [`Dataset::locality`].
    pub fn locality(&self, ranks: &[Vec<String>]) -> Result<Locality, Error> {
        let fetchers: Vec<_> = self.datasets().iter().map(|dataset| &**dataset.fetcher()).collect();
        Locality::of(&fetchers, ranks)
    }

    /// As [`Dataset::nodes_here`], of all clusters that the mixture is read through.
    #[must_use]
    pub fn nodes_here(&self) -> Vec<String> {
        let mut nodes: Vec<_> = self.datasets().iter().flat_map(Dataset::nodes_here).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}
