"""The processes that the tests run against, as their users run them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self

#: The secret of the nodes of a cluster.
TOKEN = "a-secret-of-the-tests"

#: Seconds in which a ring must have changed.
HANG_SECONDS = 60

ROOT = Path(__file__).resolve().parents[3]
BINARIES = Path(os.environ.get("LARDER_TEST_BINARIES", ROOT / "target/debug"))


class Program:
    """A child process that prints its address as JSON, and ends with its standard input."""

    def __init__(self, name: str, *arguments: str) -> None:
        program = BINARIES / name
        if not program.exists():
            raise FileNotFoundError(f"{program} is missing: run `make python` first")
        self.process = subprocess.Popen(
            [program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{name} did not start"
        self.said: dict[str, Any] = json.loads(line)

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        self.process.terminate()
        self.process.communicate(timeout=60)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """It holds its connections and says nothing. Begins when all its threads have stopped."""
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            while any(state != "T" for state in self._states()):
                time.sleep(0.001)
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def _states(self) -> list[str]:
        """The state of each thread, one letter."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.communicate(timeout=60)


class S3Server:
    """The S3 server of the tests; sets the environment so that clients and nodes find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "data").mkdir()
        self.program = Program("larder-demo-origin", "--dir", str(folder))
        said = self.program.said
        self.environment = {
            "AWS_ENDPOINT_URL": said["endpoint"],
            "AWS_ACCESS_KEY_ID": said["access_key"],
            "AWS_SECRET_ACCESS_KEY": said["secret_key"],
            "AWS_REGION": said["region"],
            "AWS_ALLOW_HTTP": "true",
        }

    def counts(self) -> dict[str, Any]:
        """Counts of the requests since it started."""
        with urllib.request.urlopen(self.program.said["counts_endpoint"]) as answer:
            return json.load(answer)

    def __enter__(self) -> Self:
        os.environ.update(self.environment)
        return self

    def __exit__(self, *_: object) -> None:
        self.program.stop()


class Node(Program):
    """A `larder-node` on loopback."""

    def __init__(
        self,
        folder: Path,
        *,
        origin: str,
        memory: str = "256MiB",
        listen: str = "127.0.0.1:0",
        members: Sequence[str] = (),
        more: Sequence[str] = (),
    ) -> None:
        arguments = ["-o", "json", "--exit-with-stdin", "--node-id", folder.name]
        arguments += ["--memory", memory, "--origin", origin, "--listen", listen]
        arguments += [argument for member in members for argument in ("--member", member)]
        arguments += ["--data-listen", "127.0.0.1:0", "--socket", str(folder / "run/larder.sock")]
        super().__init__("larder-node", *arguments, *more)

    @property
    def address(self) -> str:
        """The address that clients get as their cluster."""
        return f"http://{self.said['listen']}"


@contextmanager
def ring(folder: Path, *names: str, origin: str) -> Iterator[list[Node]]:
    """Nodes of these names that share the data under ``origin``."""
    with ExitStack() as held:
        sockets = [held.enter_context(closing(socket.socket())) for _ in names]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        listens = ["{}:{}".format(*one.getsockname()) for one in sockets]
    members = [f"{name}=http://{listen}" for name, listen in zip(names, listens, strict=True)]
    with ExitStack() as running:
        nodes = []
        for name, listen in zip(names, listens, strict=True):
            home = folder / name
            home.mkdir()
            nodes.append(Node(home, origin=origin, listen=listen, members=members))
            running.callback(nodes[-1].stop)
        yield nodes


@contextmanager
def member(home: Path, *more: str, memory: str = "256MiB") -> Iterator[Node]:
    """A node that founds a cluster, or joins one."""
    home.mkdir()
    cluster = ["--state", str(home / "state"), "--token", TOKEN, *more]
    node = Node(home, origin="s3://data", memory=memory, more=cluster)
    try:
        yield node
    finally:
        node.stop()


def active_nodes(cluster: str) -> list[str]:
    """The ids of the nodes that own shards."""
    tool = [BINARIES / "larder", "--cluster", cluster, "ring", "status", "-o", "json"]
    shown = subprocess.run(tool, stdout=subprocess.PIPE, check=False)
    assert shown.returncode in {0, 5}, "5 if a node does not answer"
    nodes = json.loads(shown.stdout)["nodes"]
    return [node["node"] for node in nodes if node["state"] == "active"]


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a change of the ring."""
    deadline = time.monotonic() + HANG_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
