//! Another user of a node's host may look at its health, and read nothing.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use larder_tests::node::binary;
use larder_tests::tool::{larder, said};
use larder_tests::{NodeOptions, NodeProcess};
use nix::unistd::{Gid, Group, User, geteuid};

use super::allow;

/// The user `nobody`, and the tool where that user can run it.
pub(super) struct Other {
    user: User,
    group: Group,
    tool: PathBuf,
}

impl Other {
    /// `None`, and says so, if these tests may not run programs as another user.
    pub(super) fn new(folder: &Path) -> Option<Self> {
        if !geteuid().is_root() {
            eprintln!("NOT TESTED: only root can run a program as another user");
            return None;
        }
        let user = User::from_name("nobody").expect("users can be read").expect("Linux has it");
        let group = Group::from_gid(user.gid).expect("groups can be read").expect("its group");
        let tool = folder.join("larder");
        std::fs::copy(binary("larder"), &tool).expect("a copy of the tool");
        allow(&tool, 0o755);
        allow(folder, 0o755);
        Some(Self { user, group, tool })
    }

    pub(super) fn asks(&self, node: &NodeProcess, args: &[&str]) -> Output {
        let mut tool = Command::new(&self.tool);
        tool.args(args).args(["--cluster", &node.address()]).current_dir("/");
        tool.env_clear().uid(self.user.uid.as_raw()).gid(self.user.gid.as_raw());
        tool.output().expect("larder starts")
    }

    fn browses(&self, node: &NodeProcess, path: &str) -> String {
        let address = node.address().replace("http://", "").replace(':', "/");
        let request =
            format!("GET {path} HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n\\r\\n");
        let script = format!("exec 3<>/dev/tcp/{address}; printf '{request}' >&3; cat <&3");
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).uid(self.user.uid.as_raw()).gid(self.user.gid.as_raw());
        String::from_utf8_lossy(&bash.output().expect("bash starts").stdout).into_owned()
    }
}

pub(super) fn node(folder: &Path, args: &[&str]) -> NodeProcess {
    let mut options = NodeOptions::new("a", &format!("file://{}", folder.display()));
    options.args = args.iter().map(|arg| (*arg).to_owned()).collect();
    NodeProcess::start(&options)
}

#[test]
fn another_user_of_the_host_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(other) = Other::new(folder.path()) else { return };
    let node = node(folder.path(), &[]);
    for args in [&["node", "ls"][..], &["dataset", "ls"], &["node", "show", "a"]] {
        let own = larder(&node.address(), folder.path(), None, args);
        assert!(own.status.success(), "{args:?}: {}", said(&own));
        let refused = other.asks(&node, args);
        assert_eq!(refused.status.code(), Some(4), "{args:?}: {}", said(&refused));
        let why = said(&refused);
        assert!(why.contains("user root (0)") && why.contains("user nobody ("), "{args:?}: {why}");
        assert!(why.contains("--any-local-user"), "{args:?}: {why}");
    }
    assert!(other.browses(&node, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(other.browses(&node, "/metrics").starts_with("HTTP/1.1 200"));
}

#[test]
fn users_are_admitted_by_group_or_all_together() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(other) = Other::new(folder.path()) else { return };
    let own_group = Group::from_gid(Gid::from_raw(0)).expect("groups can be read").expect("root's");
    let code =
        |args: &[&str]| other.asks(&node(folder.path(), args), &["node", "ls"]).status.code();
    assert_eq!(code(&["--socket-group", &own_group.name]), Some(4));
    assert_eq!(code(&["--socket-group", &other.group.name]), Some(0));
    assert_eq!(code(&["--any-local-user"]), Some(0));
}
