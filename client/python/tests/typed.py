"""Types the commands of a page on hosts of its own: `unshare ... python typed.py PAGE`.

Runs in namespaces that its caller made for it: network, mounts and processes. A host is a shell in
a root of its own, with a name of its own. Its `/etc`, `/var`, `/run` and home begin empty.
Programs, Python and the system's libraries are those of this machine. All hosts share one network
and an S3 server.

Commands run as printed and in order, with three exceptions. Keys printed as `...` get the server's
values. `larder-node` runs in the background of the first host that has no node. Commands of
`ELSEWHERE` are left out.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from harness import BINARIES, ROOT, S3Server

#: Commands that build, install or show Larder. `make test` and the wheel's tests run them.
ELSEWHERE = ("make ", "cargo ", "pip ", "larder demo")

#: Hosts 1 to 5 of the pages.
HOSTS = 5

#: The longest wait for a state of the cluster.
WAIT_SECONDS = 60

#: Top-level folders that begin empty on a host.
_EMPTY = {"etc", "home", "media", "mnt", "root", "run", "srv", "tmp", "var"}


class Host:
    """A shell on a host, and the nodes that run there."""

    def __init__(self, number: int, root: Path, environment: dict[str, str]) -> None:
        own = "".join(f"mount -t tmpfs tmpfs {root}/{folder}; " for folder in ("run", "var/lib"))
        enter = (
            f"hostname host-{number}; {own} cd {root}; exec chroot . /bin/bash --norc --noprofile"
        )
        self.environment = environment
        self.shell = subprocess.Popen(
            ["unshare", "--mount", "--uts", "/bin/sh", "-ec", enter],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
        )
        self.node = 0
        assert self.run("cd")[0] == 0

    def run(self, command: str) -> tuple[int, str]:
        """The exit code of a command and what it printed."""
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.shell.stdin.write(f"{{ {command}\n}} </dev/null\ncode=$?; echo; echo done: $code\n")
        self.shell.stdin.flush()
        said = []
        for line in self.shell.stdout:
            if found := re.fullmatch(r"done: (\d+)\n", line):
                return int(found[1]), "".join(said).rstrip("\n")
            said.append(line)
        raise AssertionError("the shell ended: " + "".join(said))

    def start(self, command: str) -> None:
        """Starts a node, and waits until it says that it listens, as a reader does."""
        command = command.split(" #")[0].rstrip("& ")
        _, said = self.run(f"{command} >/run/node.log 2>&1 &\necho pid: $!")
        self.node = int(said.rsplit("pid: ", 1)[1])
        listen = re.search(r"--listen (\S+):(\d+)", command)
        address, port = listen.groups() if listen else ("127.0.0.1", "7070")
        for _ in range(WAIT_SECONDS * 20):
            with socket.socket() as probe:
                if probe.connect_ex((address, int(port))) == 0:
                    return
            if self.run(f"kill -0 {self.node}")[0]:
                break
            time.sleep(0.05)
        raise AssertionError(f"{command} does not listen: " + self.run("cat /run/node.log")[1])

    def kill(self) -> None:
        """Ends the node at once."""
        if self.node:
            self.run(f"kill -KILL {self.node}; wait {self.node}")
            self.node = 0


class Hosts:
    """All hosts, and the one whose terminal the reader uses."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.root = _root()
        self.all: dict[int, Host] = {}
        self.here = 1
        self.join_command = ""
        #: Exit codes that a command may have: 5 while a node is down.
        self.codes = {0}

    def host(self, number: int) -> Host:
        if number not in self.all:
            environment = {
                "PATH": f"{BINARIES}:{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME": "/root",
                "AWS_ENDPOINT_URL": self.server.environment["AWS_ENDPOINT_URL"],
                **{name: self.server.environment[name] for name in _KEYS},
            }
            self.all[number] = Host(number, self.root, environment)
        return self.all[number]

    def new(self) -> None:
        """Begins with new hosts; the folder /etc stays."""
        for host in self.all.values():
            host.kill()
            host.shell.kill()
            host.shell.wait()
        self.all, self.here, self.codes = {}, 1, {0}

    def type(self, command: str) -> str:
        """Types a command in the reader's terminal."""
        if command.startswith("export "):
            for number in range(1, HOSTS + 1):
                assert self.host(number).run(self._with_keys(command))[0] == 0
            return ""
        code, said = self.host(self.here).run(command)
        print(f"{said}\n" if said else "", end="", flush=True)
        assert code in self.codes, f"exit code {code} of: {command}"
        return said

    def _with_keys(self, command: str) -> str:
        for name in _KEYS:
            command = command.replace(f"{name}=...", f"{name}={self.server.environment[name]}")
        return command

    def start_next(self, command: str) -> None:
        """Starts a node on the first host without one."""
        number = next(n for n in range(1, HOSTS + 1) if not self.host(n).node)
        self.join_command = command
        self.host(number).start(command)

    def join(self, *numbers: int) -> None:
        """Starts further nodes by the last command, and waits until they are in the ring."""
        for number in numbers:
            self.start(number)
        self.until("active", *numbers)

    def start(self, number: int) -> None:
        host = self.host(number)
        host.run("rm -rf /var/lib/larder")
        host.start(re.sub(r"--listen \S+", f"--listen 10.0.0.{number}:7070", self.join_command))

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.host(number).kill()

    def status(self) -> dict[str, object]:
        _, said = self.host(self.here).run("larder ring status -o json 2>/dev/null")
        return dict(json.loads(said)) if said.startswith("{") else {}

    def until(self, state: str, *numbers: int) -> None:
        """Waits until these nodes have a state."""
        names = {f"host-{number}" for number in numbers}

        def reached() -> bool:
            nodes = self.status().get("nodes")
            assert nodes is None or isinstance(nodes, list)
            found = {one["node"] for one in nodes or () if one["state"] == state}
            return names <= found

        self.wait(f"{names} are {state}", reached)

    def wait(self, state: str, reached: Callable[[], bool]) -> None:
        for _ in range(WAIT_SECONDS * 10):
            if reached():
                return
            time.sleep(0.1)
        raise AssertionError(f"not reached: {state}\n{json.dumps(self.status(), indent=1)}")


_KEYS = ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def _root() -> Path:
    """The root of all hosts."""
    root = Path(tempfile.mkdtemp(prefix="root-"))
    _mount("-t", "tmpfs", "tmpfs", str(root))
    for entry in Path("/").iterdir():
        inside = root / entry.name
        if entry.is_symlink():
            inside.symlink_to(entry.readlink())
        elif entry.is_dir() and entry.name not in _EMPTY:
            inside.mkdir()
            _mount("--rbind", str(entry), str(inside))
    for name in _EMPTY:
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "var/lib").mkdir()
    shutil.copytree("/etc/ssl", root / "etc/ssl")
    names = "".join(f"10.0.0.{number} host-{number}\n" for number in range(1, HOSTS + 1))
    (root / "etc/hosts").write_text(
        f"127.0.0.1 localhost\n{names}10.0.0.1 etcd-a\n10.0.0.2 etcd-b\n"
    )
    for folder in {ROOT, BINARIES, Path(sys.prefix), Path(sys.base_prefix)}:
        inside = root / folder.relative_to("/")
        if not inside.exists():
            inside.mkdir(parents=True)
            _mount("--rbind", str(folder), str(inside))
    return root


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """The commands of a page, and their sections.

    They are the lines of `sh` blocks, and those after `$` in `console` blocks.
    """
    text = page.read_text().replace("\\\n", "")
    section = kind = ""
    for line in text.splitlines():
        if line.startswith("```"):
            kind = line.removeprefix("```")
        elif not kind and line.startswith("#"):
            section = line.lstrip("# ")
        elif kind == "sh":
            yield section, line
        elif kind == "console" and line.startswith("$ "):
            yield section, line.removeprefix("$ ")


def write_data(bucket: Path) -> None:
    """The data that the pages name."""
    labels = np.arange(600, dtype=np.int64)
    images = np.repeat((labels % 251).astype(np.uint8)[:, None], 32 * 1024, axis=1)
    for name in ("imagenet", "images", "data"):
        (bucket / name).mkdir(parents=True)
        for start in range(0, 600, 50):
            part = {"image": images[start : start + 50], "label": labels[start : start + 50]}
            save_file(part, bucket / name / f"part-{start:03}.safetensors")
    (bucket / "tokens").mkdir()
    np.arange(10_000, dtype=np.uint16).tofile(bucket / "tokens/part-00000.bin")
    write_files_of_pages(bucket)


def write_files_of_pages(bucket: Path) -> None:
    """Photographs, tars and documents that the page on formats names."""
    for name in ("photos/cat/1.jpg", "photos/cat/._1.jpg", "photos/dog/2.jpg"):
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_bytes(b"\xff\xd8\xff\xe0")
    names = [f"wds/{number:03}.tar" for number in range(147)]
    for name in [*names, "extra/005.tar"]:
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(bucket / name, "w") as tar:
            member = tarfile.TarInfo("0.txt")
            member.size = 1
            tar.addfile(member, io.BytesIO(b"a"))
    (bucket / "docs").mkdir()
    tokens = {"tokens": np.arange(5_000, dtype=np.int32), "tokens.offsets": np.arange(0, 5_001, 50)}
    save_file(tokens, bucket / "docs/part-0.safetensors")


def start_etcd(hosts: Hosts) -> None:
    """New hosts, and an etcd that speaks TLS under the names of the page."""
    hosts.new()
    folder = hosts.root / "etc/larder"
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    subprocess.run(
        f"""
        openssl req -x509 {key} -keyout ca.key -out etcd-ca.pem -subj /CN=authority
        openssl req -x509 {key} -keyout etcd.key -out etcd.pem -subj /CN=etcd \
            -CA etcd-ca.pem -CAkey ca.key -addext subjectAltName=DNS:etcd-a,DNS:etcd-b \
            -addext basicConstraints=critical,CA:FALSE
        """,
        shell=True,
        check=True,
        cwd=folder,
        stderr=subprocess.DEVNULL,
    )
    urls = "https://10.0.0.1:2379,https://10.0.0.2:2379"
    etcd = os.environ["LARDER_ETCD_SERVER"]
    subprocess.Popen(
        [
            *(etcd, "--data-dir", tempfile.mkdtemp(), "--log-level", "error"),
            *("--listen-client-urls", urls, "--advertise-client-urls", urls),
            *("--cert-file", str(folder / "etcd.pem"), "--key-file", str(folder / "etcd.key")),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def leave_etcd(hosts: Hosts) -> None:
    """New hosts, once the node on etcd is a member."""
    hosts.until("active", 1)
    hosts.new()


def found_cluster(hosts: Hosts) -> None:
    """Five new hosts in one cluster, as the page starts them, with its data in memory."""
    hosts.new()
    token = hosts.root / "etc/larder/token"
    assert [oct(path.stat().st_mode & 0o777) for path in (token.parent, token)] == [
        "0o700",
        "0o600",
    ]
    founder, joiner = (line for _, line in commands(OPERATING) if "--state" in line)
    hosts.host(1).start(founder)
    hosts.join_command = joiner
    hosts.host(1).run("export LARDER_TOKEN_FILE=/etc/larder/token")
    hosts.join(2, 3, 4, 5)
    hosts.type("larder dataset index s3://bucket/data --shard-bytes 1MiB")
    hosts.type("larder dataset verify s3://bucket/data")


def lose(hosts: Hosts, *numbers: int) -> None:
    """Ends nodes for good."""
    hosts.kill(*numbers)
    hosts.codes = {0, 5}


def bring_back(hosts: Hosts, *numbers: int) -> None:
    """Puts new nodes on hosts that are out of the ring."""
    hosts.codes = {0}
    hosts.kill(*numbers)
    hosts.join(*numbers)


def lose_a_quarter(hosts: Hosts) -> None:
    bring_back(hosts, 2, 3)
    lose(hosts, 2, 3)


#: Reads for a while.
_READER = """
import larder, time
data = larder.open("s3://bucket/data", cluster="http://10.0.0.1:7070")
until = time.monotonic() + 30
while time.monotonic() < until:
    list(data.loader(50))
    time.sleep(0.5)
"""


def pause_a_join(hosts: Hosts) -> None:
    """Leaves a change in flight: host 2 joins, and is paused before all its shards have come."""
    hosts.type("larder node drain host-2 --follow --yes")
    hosts.kill(2)
    # An open dataset has shards to move, and transfers yield to nodes that are read.
    reader = shlex.join([sys.executable, "-c", _READER])
    _, said = hosts.host(1).run(
        f"{reader} >/run/reader.log 2>&1 & sleep 2; kill -0 $! || cat /run/reader.log"
    )
    assert not said, said
    hosts.start(2)
    hosts.type("for try in {1..1000}; do larder ring pause --yes 2>/dev/null && break; done")


def lose_coordinator(hosts: Hosts) -> None:
    """Ends the node of host 1, and goes to the terminal of host 2."""
    lose(hosts, 1)
    hosts.here = 2
    hosts.host(2).run("export LARDER_TOKEN_FILE=/etc/larder/token")


def write_profile(hosts: Hosts) -> None:
    """Moves the keys from variables to a profile."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    lines = "".join(f"{name.lower()} = ${name}\\n" for name in names)
    hosts.type(f'printf "[dev]\\n{lines}" > /run/credentials; unset {" ".join(names)}')
    hosts.type("export AWS_SHARED_CREDENTIALS_FILE=/run/credentials")


OPERATING = ROOT / "docs/operating.md"

#: What happens on the hosts before a section, or before a command with these first words.
BEFORE: dict[str, dict[str, Callable[[Hosts], None]]] = {
    "README.md": {"(umask": Hosts.new},
    "docs/python/README.md": {"Credentials": write_profile},
    "docs/operating.md": {
        "By etcd": start_etcd,
        "Fixed": leave_etcd,
        "Rights": found_cluster,
        "Remove dead nodes": lambda hosts: lose(hosts, 3),
        "The brake": lose_a_quarter,
        "Plan a change": lambda hosts: bring_back(hosts, 2, 3),
        "Slow down, pause, abort": pause_a_join,
        "The coordinator is away": lose_coordinator,
    },
}


def main(page: str) -> None:
    for number in range(1, HOSTS + 1):
        subprocess.run(["ip", "addr", "add", f"10.0.0.{number}/32", "dev", "lo"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    folder = Path(tempfile.mkdtemp())
    write_data(folder / "bucket")
    with S3Server(folder) as server:
        hosts = Hosts(server)
        waiting = dict(BEFORE.get(page, {}))
        for section, command in commands(ROOT / page):
            if command.startswith(ELSEWHERE):
                continue
            for key in [key for key in waiting if section == key or command.startswith(key)]:
                waiting.pop(key)(hosts)
            print(f"\n{hosts.here}$ {command}", flush=True)
            if command.startswith("larder-node"):
                hosts.start_next(command)
            else:
                hosts.type(command)
        assert not waiting, f"{page} no longer has: {', '.join(waiting)}"


if __name__ == "__main__":
    main(sys.argv[1])
