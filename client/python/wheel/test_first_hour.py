"""A newcomer's first hour: the wheel, an S3 server and small clusters, in a fresh home folder.

The steps are those of a user who makes one mistake after the other. Each step checks the line that
the user sees. Torch comes from the environment of the torch tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from safetensors.numpy import save_file

from harness import BINARIES, ROOT, S3Server

#: The environment of the torch tests.
TORCH = next((ROOT / "target/venv-torch").glob("lib/python*/site-packages"), None)

#: The secret of the user's clusters.
TOKEN = "the secret of a first cluster"

#: Clusters of this test are five times as quick as others.
PACE = ("--divide-timing", "5")

#: The longest wait for a process.
WAIT_SECONDS = 60


T = TypeVar("T")


class User:
    """Someone with the wheel, a bucket and a terminal."""

    def __init__(self, home: Path, environment: dict[str, str], server: S3Server) -> None:
        self.home, self.server, self.bucket = home, server, server.folder / "data"
        self.environment = {
            **environment,
            **server.environment,
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "LARDER_TOKEN": TOKEN,
        }

    def python(self, program: str, **more: str) -> str:
        """Runs a program, and returns what it printed."""
        return self.shell(["python", "-c", program], code=None, **more)

    def shell(self, command: list[str], code: int | None = 0, **more: str) -> str:
        """Runs a command that must exit with this code, and returns what it printed."""
        done = subprocess.run(
            command,
            env=self.environment | more,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert code is None or done.returncode == code, f"{command}: {done.stdout}"
        return done.stdout

    def larder(self, *words: str, code: int = 0, cluster: str = "none") -> str:
        return self.shell(["larder", *words], code, LARDER_CLUSTER=cluster)

    def until_ring(self, pattern: str, address: str) -> None:
        """Waits until the page about the ring has the pattern."""

        def look() -> re.Match[str] | None:
            page = self.shell(["larder", "ring", "status"], None, LARDER_CLUSTER=address)
            return re.search(pattern, page)

        until(pattern, look)

    @contextmanager
    def node(self, name: str, *more: str, **environment: str) -> Iterator[ClusterNode]:
        """Runs a node of a cluster: its folder has this name, and its id is the first letter."""
        node = ClusterNode(self, name, more, environment)
        try:
            yield node
        finally:
            node.end()


class ClusterNode:
    """A `larder-node` with its state and its log in the user's home."""

    def __init__(
        self, user: User, name: str, more: tuple[str, ...], environment: dict[str, str]
    ) -> None:
        home = user.home / name
        home.mkdir(exist_ok=True)
        self.log = home / "log"
        command = [
            "larder-node",
            "--node-id",
            name[0],
            "--memory",
            "64MiB",
            "--origin",
            "s3://data",
        ]
        command += ["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"]
        command += ["--state", str(home / "state"), *more]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                env=user.environment
                | {"XDG_RUNTIME_DIR": str(home), "RUST_LOG": "info"}
                | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def says(self, pattern: str) -> re.Match[str]:
        """Waits until its log has the pattern."""
        return until(pattern, lambda: re.search(pattern, self.log.read_text()), self.log)

    @property
    def address(self) -> str:
        return "http://" + self.says(r"listening: control (127\.0\.0\.1:\d+)")[1]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(WAIT_SECONDS)


def until(state: str, look: Callable[[], T | None], log: Path | None = None) -> T:
    """Waits for something that is not None."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not reached: {state}\n{log.read_text() if log else ''}")


@pytest.fixture
def user(environment: dict[str, str], tmp_path: Path) -> Iterator[User]:
    with S3Server(tmp_path) as server:
        home = tmp_path / "home"
        home.mkdir()
        yield User(home, environment, server)


def images(folder: Path, samples: int = 300, side: int = 8) -> None:
    """Writes three files of images with labels."""
    folder.mkdir(parents=True)
    labels = np.arange(samples)
    image = np.zeros((samples, side, side, 3), np.uint8)
    for part in np.array_split(labels, 3):
        rows = {"image": image[part], "label": part}
        save_file(rows, folder / f"part-{part[0]:05}.safetensors")


def test_wrong_credentials_and_then_right_ones(user: User) -> None:
    images(user.bucket / "images")
    first = 'import larder; print(len(larder.open("s3://data/images")))'
    refused = user.python(first, AWS_SECRET_ACCESS_KEY="mistyped")
    assert "SignatureDoesNotMatch" in refused
    assert "PermissionDenied" in refused
    assert user.python(first).endswith("300\n"), "the very next attempt works"


def profile_of(user: User) -> dict[str, str]:
    """Moves the user's keys from variables to a profile, and returns the variable that names it."""
    taken = {name: user.environment.pop(name) for name in list(user.environment) if "AWS_" in name}
    folder = user.home / ".aws"
    folder.mkdir()
    keys = ("aws_access_key_id", "aws_secret_access_key")
    lines = [f"{key} = {taken[key.upper()]}" for key in keys]
    (folder / "credentials").write_text("\n".join(["[team]", *lines, ""]))
    lines = [f"region = {taken['AWS_REGION']}", f"endpoint_url = {taken['AWS_ENDPOINT_URL']}"]
    (folder / "config").write_text("\n".join(["[profile team]", *lines, ""]))
    return {"AWS_PROFILE": "team"}


def test_profile_of_a_user_opens_a_bucket_that_must_not_be_written(user: User) -> None:
    images(user.bucket / "images")
    user.environment |= profile_of(user)
    planned = user.larder("dataset", "index", "s3://data/images", "--dry-run")
    assert re.search(r"reads about .* of 3 files with ", planned), planned
    program = """
import larder
ds = larder.open("s3://data/images", write="never")
parts = larder.mix(dict.fromkeys(ds.split([0.1] * 10), 1))
print(parts.loader(30), len(list(ds.loader(30))))
print("larder_loader_" in larder.metrics())
"""
    said = user.python(program)
    assert f"manifest file://{user.home}/.cache/larder/" in said, said
    assert "shuffle 'global' by 'auto'" in said, said
    assert said.endswith(" 10\nTrue\n"), said
    assert not (user.bucket / "images/.larder").exists()
    said = user.python(program.replace(', write="never"', ""), LARDER_WRITE="never")
    assert "indexed now" not in said, said
    doctor = user.larder("doctor", "s3://data/images")
    assert "profile team" in doctor, doctor


def test_store_that_does_not_answer_is_told_while_the_user_waits(user: User) -> None:
    images(user.bucket / "images")
    store = user.server.program
    program = 'import larder; print(len(larder.open("s3://data/images")))'
    with store.silent():
        opening = subprocess.Popen(
            ["python", "-c", program],
            env=user.environment,
            cwd=user.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert opening.stderr is not None
        said = opening.stderr.readline()
        while "gives no right answer" not in said:
            assert opening.poll() is None, said
            said += opening.stderr.readline()
    assert opening.communicate(timeout=WAIT_SECONDS)[0] == "300\n"


def test_layouts_and_added_objects_are_told(user: User) -> None:
    for folder in ("train", "val"):
        (user.bucket / "frames" / folder).mkdir(parents=True)
        for number in range(5):
            frame = np.zeros((16, 16, 3), np.uint8)
            np.save(user.bucket / "frames" / folder / f"img_{number}.npy", frame)
    opened = user.python('import larder; larder.open("s3://data/frames")')
    for words in (
        "160 samples (img uint8 [16,3]) from 10 files of 16 rows each in 2 folders: train/, val/",
        "each file may be one sample: 10 files like train/img_0.npy hold [16,16,3]",
    ):
        assert words in opened, opened
    np.save(user.bucket / "frames/train/img_9.npy", np.zeros((16, 16, 3), np.uint8))
    added = "1 object was added under s3://data/frames after it was indexed"
    opened = user.python('import larder, time; larder.open("s3://data/frames"); time.sleep(2)')
    assert added in opened, opened
    for command in (("dataset", "show"), ("dataset", "verify"), ("doctor",)):
        assert added in user.larder(*command, "s3://data/frames"), command


def test_memory_order_and_last_samples_are_told(user: User) -> None:
    images(user.bucket / "wide", side=160)
    images(user.bucket / "images")
    program = """
import larder
ds = larder.open("s3://data/{name}")
print(ds.loader({arguments}))
"""
    wide = program.format(name="wide", arguments="30")
    said = user.python(wide, LARDER_MEMORY="12MiB", LARDER_HOST_NODE="small")
    assert re.search(
        r"the data \(22 MiB\) does not fit the cache of this host \(12 MiB\): each epoch reads the "
        r"rest from the origin; .*LARDER_MEMORY=\d+MiB would hold it all",
        said,
    ), said
    more = "import os; os.environ['LARDER_MEMORY'] = '512MiB'; larder.open('s3://data/images')"
    said = user.python(program.format(name="images", arguments="50") + more)
    assert re.search(
        r"the cache of this host has 256 MiB since its start \d+ s ago; LARDER_MEMORY=512MiB takes",
        said,
    ), said
    said = user.python(program.format(name="images", arguments="125, shuffle='none'"))
    assert "each epoch drops the last 50 of 300 samples" in said, said
    assert "last='uneven'" in said, said
    ranks = program.format(name="images", arguments="10, rank=1, world_size=2")
    said = user.python(ranks, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="10.0.0.1")
    assert "shuffle 'global' by 'auto', rank 1 of 2" in said, said
    said = user.python(ranks.replace("rank=1", "rank=0"), MASTER_ADDR="10.0.0.1")
    assert "shuffle 'auto' is 'window:64' on 2 ranks, where one rank has 'global'" in said, said


def test_data_loaders_of_torch_are_led_to_the_right_use(user: User) -> None:
    assert TORCH, "make target/venv-torch/ready installs torch"
    images(user.bucket / "images")
    program = """
import torch
from torch.utils.data import DataLoader
import larder, larder.torch
ds = larder.open("s3://data/images")
def use(made):
    try:
        for _ in range(2):
            for _ in made():
                pass
    except Exception as error:
        print(type(error).__name__, error)
data = larder.torch.IterableDataset(ds, batch_size=50)
use(lambda: DataLoader(data, batch_size=50))
use(lambda: DataLoader(ds.loader(50), batch_size=None, num_workers=0))
use(lambda: ds.loader(50, num_workers=2))
use(lambda: ds.loader(50, drop_last=True))
"""
    said = user.python(program, PYTHONPATH=str(TORCH))
    for words in (
        "the DataLoader collates 6 whole batches into one",
        "batch_size=None",
        "a larder.Loader has no item 0",
        "workers=",
        "last=",
    ):
        assert words in said, f"{words!r} is not in {said}"
    again = """
from torch.utils.data import DataLoader
import larder, larder.torch
data = larder.torch.IterableDataset(larder.open("s3://data/images"), batch_size=50)
loader = DataLoader(data, batch_size=None)
for _ in range(3):
    list(loader)
"""
    said = user.python(again, PYTHONPATH=str(TORCH))
    assert said.count("is iterated again, in the same order: call set_epoch(epoch)") == 1, said


def test_clusters_are_told_apart_and_mistakes_named(user: User) -> None:
    with user.node("a", *PACE) as a, user.node("b", *PACE) as b:
        both = f"{a.address},{b.address}"
        for one in (a, b):
            user.until_ring("1 of cluster", one.address)
        refused = user.larder("ring", "status", code=2, cluster=both)
        assert "nodes of two clusters" in refused
        assert all(f"{one.address} is of cluster" in refused for one in (a, b)), refused
        gone = user.larder("node", "drain", "x", "--yes", code=3, cluster=a.address)
        assert "'x'" in gone
        unnamed = user.shell(["larder", "ring", "status"], XDG_RUNTIME_DIR=str(user.home / "a"))
        assert a.address in unnamed, "the tool finds the node behind the default socket"
        join = ("--join", a.address.removeprefix("http://"), "--divide-timing", "30")
        with user.node("a-again", *join) as second:
            second.says(f"another node named 'a' answers at {a.address}: .*--node-id")
            assert second.process.wait(WAIT_SECONDS) == 1
        with user.node("c", *join, LARDER_TOKEN="a wrong secret of this test") as wrong:
            wrong.says("that is not the token of this cluster")
            assert wrong.process.wait(WAIT_SECONDS) == 1
        a.says(r"a node at 127\.0\.0\.1:\d+ was refused: its token is not that of this cluster")
    with user.node("d", "--origin", "s3://nothing/data") as blind:
        blind.says(r"--origin: .*s3://nothing/data.* was not found")
        assert "s3://nothing/data" in user.larder("node", "show", "d", cluster=blind.address)


def test_removed_node_comes_back_on_its_old_folder(user: User) -> None:
    with user.node("a", *PACE) as a:
        user.until_ring("1 of cluster", a.address)
        join = ("--join", a.address.removeprefix("http://"), *PACE)
        with user.node("b", *join) as b:
            user.until_ring("2 of cluster", b.address)
            a.process.kill()
            a.process.wait()
            takeover = ["larder", "ring", "takeover", "--lost", "a", "--yes"]
            ring = {"LARDER_CLUSTER": b.address}
            # Its copy of the newest record may still be on its way.
            until("a takeover", lambda: "error:" not in user.shell(takeover, None, **ring) or None)
            user.larder("ring", "remove", "a", "--yes", cluster=b.address)
            user.until_ring("3 of cluster", b.address)
            with user.node("a", *PACE) as again:
                again.says("this node follows it from now on")
                again.says("a wants to join")
                user.until_ring("active.* a |a .*active", b.address)


def test_commands_of_the_pages_run_from_the_wheel(user: User, tmp_path: Path) -> None:
    """The pages' commands, in order, in an empty root, by the programs of the wheel."""
    programs = tmp_path / "programs"
    programs.mkdir()
    found = user.shell(
        ["python", "-c", "import larder, pathlib; print(pathlib.Path(larder.__file__).parent)"]
    )
    for name in ("larder", "larder-node"):
        shutil.copy(Path(found.strip()) / "bin" / name, programs)
    shutil.copy(BINARIES / "larder-demo-origin", programs)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/test_typed.py"],
        cwd=ROOT / "client/python",
        env=os.environ | {"LARDER_TEST_BINARIES": str(programs)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
