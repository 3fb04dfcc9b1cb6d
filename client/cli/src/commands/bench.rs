//! Placeholder.
use clap::Args;
use crate::{context::Context, error::Failure};
#[derive(Debug, Args)]
pub(crate) struct Arguments {}
pub(super) fn run(_: &Context, _: &Arguments) -> Result<(), Failure> { Ok(()) }
