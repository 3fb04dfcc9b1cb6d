//! The parts with all data in memory: remote gathers, local reads, and the loader.

mod loader;
mod local;
mod remote;

use crate::children::Node;
use crate::matrix::SHAPES;
use crate::report::Report;
use crate::{Error, Part};

pub(crate) fn measure(report: &mut Report, only: Option<Part>) -> Result<(), Error> {
    let folder = tempfile::Builder::new().prefix("larder-bench-").tempdir_in("/dev/shm")?;
    let node = Node::start(&format!("file://{}", folder.path().display()), &[])?;
    let wants = |part| only.is_none_or(|only| only == part);
    for (index, shape) in SHAPES.into_iter().enumerate() {
        let data = folder.path().join(format!("rows-of-{}", shape.row_bytes));
        shape.write(&data)?;
        let matrix = shape.map(&data)?;
        if wants(Part::Remote) {
            remote::measure(report, &node, &data, index, &matrix)?;
        }
        if wants(Part::Local) {
            local::measure(report, &node, &data, &matrix)?;
        }
        if wants(Part::Loader) && index == 0 {
            loader::measure(report, &node, &data, &matrix)?;
        }
    }
    Ok(())
}
