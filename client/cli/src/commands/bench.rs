//! Placeholder.
use crate::{context::Context, error::Failure};
use clap::Args;
#[derive(Debug, Args)]
pub(crate) struct Arguments {}
pub(super) fn run(_: &Context, _: &Arguments) -> Result<(), Failure> {
    Ok(())
}
