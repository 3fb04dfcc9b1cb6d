//! Tells a node the read plans of this process's loaders.

use larder_base::{ErrorKind, limits};
use larder_wire::control::{ReadPlan, TellPlansRequest};

use super::{Cluster, answers::within};
use crate::Error;

impl Cluster {
    /// Tells the node of this host, else any node that answers. It passes plans on to the others.
    /// Tells nobody while no node has answered yet.
    ///
    /// # Errors
    /// `InvalidArgument` if the node refuses a plan. `Unavailable` if no node answers.
    pub(crate) async fn tell_plans(&self, plans: Vec<ReadPlan>) -> Result<(), Error> {
        let Some(view) = self.view() else { return Ok(()) };
        let mut order: Vec<_> = view.members.iter().filter(|one| one.health.is_up()).collect();
        order.sort_by_key(|member| !member.proximity.is_here());
        let mut failed = Ok(());
        for member in order {
            let mut client = self.control.client(&member.control)?;
            let request = TellPlansRequest { plans: plans.clone(), node_id: String::new() };
            let call = client.tell_plans(request);
            let told = within(&member.control, limits::OWNER_SILENT_TIMEOUT, call).await;
            match told {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::InvalidArgument => return Err(error),
                // Reads find out by themselves whether it is down.
                Err(error) => failed = Err(error),
            }
        }
        failed
    }
}
