"""One node a host, and nodes that a program serves."""

from __future__ import annotations

import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from held import Held
from order import check_bytes

URI = "s3://data/images"

TRAIN = """
import larder, sys
ds = larder.open(sys.argv[1])
seen = sorted(int(label) for batch in ds.loader(batch_size=50) for label in batch["label"])
assert seen == list(range(300)), seen
"""


def nodes() -> list[int]:
    """Return the nodes that run in this host's folder."""
    run = os.environ["XDG_RUNTIME_DIR"].encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if line[0].endswith(b"larder-node") and any(run in word for word in line):
            found.append(int(process.name))
    return found


def wait_until_no_node_runs() -> None:
    # The traceback of a test that failed may hold datasets.
    sys.last_value = None
    gc.collect()
    for _ in range(6000):
        if not nodes():
            return
        time.sleep(0.01)
    raise AssertionError(f"{nodes()} still run")


@pytest.mark.usefixtures("s3")
def test_eight_processes_share_one_node_announced_once() -> None:
    wait_until_no_node_runs()
    larder.index(URI)
    command = [sys.executable, "-c", TRAIN, URI]
    ranks = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 8, said
    (line,) = [text for text in said if text]
    pattern = r"larder: started a cache of 256 MiB on this host \(pid \d+, log /.*\.log\)\n"
    assert re.fullmatch(pattern, line), line
    wait_until_no_node_runs()


@pytest.mark.usefixtures("s3")
def test_pickled_dataset_finds_the_node_of_its_host(capfd: pytest.CaptureFixture[str]) -> None:
    ds = larder.open(URI)
    copy = pickle.loads(pickle.dumps(ds))
    assert len(copy) == 300
    assert len(nodes()) == 1
    capfd.readouterr()


def test_local_folder_is_read_by_its_path_alone(tmp_path: Path) -> None:
    rows = np.arange(120, dtype=np.float32).reshape(40, 3)
    save_file({"x": rows}, tmp_path / "data.safetensors")
    ds = larder.open(f"file://{tmp_path}")
    batches = [batch["x"] for batch in ds.loader(batch_size=8, shuffle="none")]
    np.testing.assert_array_equal(np.concatenate(batches), rows)


@pytest.mark.parametrize("read", ["row", "slice", "take", "loader"])
def test_node_ends_after_the_last_dataset_that_read(tmp_path: Path, read: str) -> None:
    wait_until_no_node_runs()
    save_file({"x": np.arange(40)}, tmp_path / "data.safetensors")
    # Over the network, so that connections are made.
    ds = larder.open(f"file://{tmp_path}", local=False)
    match read:
        case "row":
            assert ds[3]["x"] == 3
        case "slice":
            assert ds[3:5]["x"].tolist() == [3, 4]
        case "take":
            assert ds.take([5, 1], output="numpy")["x"].tolist() == [5, 1]
        case "loader":
            assert sum(len(batch.samples) for batch in ds.loader(8)) == 40
    assert len(nodes()) == 1
    del ds
    wait_until_no_node_runs()


@pytest.mark.parametrize("epochs_before", [0, 2])
def test_training_survives_a_killed_host_node_without_leaks(
    epochs_before: int, wide: dict[str, np.ndarray]
) -> None:
    for round_ in range(4):
        wait_until_no_node_runs()
        loader = larder.open("s3://data/wide").loader(10, shuffle="none", output="numpy")
        for _ in range(epochs_before):
            list(loader)
        seen = []
        for number, batch in enumerate(loader):
            seen += check_bytes(batch, wide)
            if number == 3:
                (node,) = nodes()
                os.kill(node, signal.SIGKILL)
        assert seen == list(range(300))
        again = sorted(label for batch in loader for label in check_bytes(batch, wide))
        assert again == seen
        if epochs_before == 0:
            assert loader.stats()["origin_bytes"] > 0
        del loader, batch
        if round_ == 1:
            held = Held()
    held.check()


def told_of_the_cache(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about the node of this host."""
    return [told for told in caplog.messages if told.startswith("the cache of this host")]


@pytest.mark.usefixtures("wide")
def test_loss_of_the_host_node_and_its_return_are_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wait_until_no_node_runs()
    loader = larder.open("s3://data/wide").loader(10, shuffle="none", output="numpy")
    batches = iter(loader)
    next(batches)
    (lost,) = nodes()
    os.kill(lost, signal.SIGKILL)
    list(batches)
    until = time.monotonic() + 60
    while len(told_of_the_cache(caplog)) < 2 and time.monotonic() < until:
        list(loader)
    list(loader)
    (found,) = nodes()
    gone, back = told_of_the_cache(caplog)
    pattern = (
        rf"the cache of this host \(pid {lost}, log /.*\.log\) has ended: until it serves again, "
        r"s3://data/wide is read from the origin, which is slower; if it was killed for want of "
        r"memory, set a smaller LARDER_MEMORY \(why: .*"
    )
    assert re.match(pattern, gone), gone
    assert back == f"the cache of this host serves again (pid {found})"


#: The variables of launchers and schedulers, which this test must not inherit.
LAUNCHER = ("LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_ADDR", "SLURM_JOB_ID", "RAY_JOB_ID")


@pytest.mark.usefixtures("s3")
def test_other_memory_than_that_of_the_running_node_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = larder.open(URI)
    monkeypatch.setenv("LARDER_MEMORY", "0.25GiB")
    larder.open(URI)
    assert told_of_the_cache(caplog) == [], "it is the same memory"
    monkeypatch.setenv("LARDER_MEMORY", "512MiB")
    for _ in range(2):
        larder.open(URI)
    (warning,) = told_of_the_cache(caplog)
    pattern = (
        r"the cache of this host has 256 MiB since its start \d+ (s|min) ago; LARDER_MEMORY=512MiB "
        r"takes effect when it starts again, 1 s after its last process has ended"
    )
    assert re.fullmatch(pattern, warning), warning
    del held


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize(
    ("variables", "shuffle", "said"),
    [
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}, "global", []),
        (
            {"MASTER_ADDR": "127.0.0.1"},
            "global",
            [
                "shuffle 'auto' is 'global' by the cache of this host: if some of the 2 ranks run "
                "on other hosts, say shuffle='global', because they could choose another order and "
                "lose samples"
            ],
        ),
        (
            {"MASTER_ADDR": "10.0.0.1"},
            "window:64",
            [
                "shuffle 'auto' is 'window:64' on 2 ranks, where one rank has 'global': the ranks "
                "may run on several hosts with caches of different sizes; say shuffle='global', or "
                "set LOCAL_WORLD_SIZE if all of them run on this host"
            ],
        ),
    ],
)
def test_ranks_of_one_host_shuffle_as_one_rank(
    variables: dict[str, str],
    shuffle: str,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    dataset = larder.open(URI)
    assert dataset.loader(10, rank=0, world_size=1).shuffle == "global"
    caplog.clear()
    ranks = [dataset.loader(10, rank=rank, world_size=2) for rank in range(2)]
    assert [loader.shuffle for loader in ranks] == [shuffle] * 2
    assert [repr(loader) for loader in ranks] == [
        f"<larder.Loader of 15 batches an epoch, shuffle '{shuffle}' by 'auto', "
        f"rank {rank} of 2 (arguments)>"
        for rank in range(2)
    ]
    assert [record.getMessage() for record in caplog.records] == said


def test_ranks_of_one_host_have_the_samples_of_one_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARDER_HOST_NODE", "ranks")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LARDER_MEMORY", "1MiB")
    save_file({"x": np.zeros((400, 4096), dtype=np.uint8)}, tmp_path / "data.safetensors")
    larder.index(f"file://{tmp_path}", shard_bytes=50_000)
    dataset = larder.open(f"file://{tmp_path}")
    one = dataset.loader(8)
    assert one.shuffle.startswith("window:")
    ranks = [dataset.loader(4, rank=rank, world_size=2) for rank in range(2)]
    whole = [batch.samples.tolist() for batch in one]
    parts = zip(*ranks, strict=True)
    assert whole == [a.samples.tolist() + b.samples.tolist() for a, b in parts]


@pytest.mark.usefixtures("s3")
def test_served_node_serves_reads_and_stops_with_its_block() -> None:
    with larder.serve(memory="256MiB", origins=["s3://data"]) as node:
        assert Path(f"/proc/{node.pid}").exists()
        ds = larder.open(URI, cluster=node.address)
        assert int(ds[7]["label"]) == 7
    assert not Path(f"/proc/{node.pid}").exists()
    node.stop()


def test_serve_requires_origins_and_reports_failed_starts(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(TypeError, match="'origins'"):
        larder.serve("256MiB")
    with pytest.raises(larder.InvalidArgument, match="needs the prefixes") as raised:
        larder.serve("256MiB", origins=[])
    assert "s3://bucket/data" in raised.value.hint
    with pytest.raises(larder.Unavailable, match="did not start") as raised:
        larder.serve("256MiB", origins=["nonsense"])
    assert "'nonsense'" in raised.value.why
    assert "nonsense" not in capfd.readouterr().err


def test_log_of_a_served_node_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUST_LOG", "info")
        larder.serve("256MiB", origins=["file:///tmp"]).stop()
    assert "INFO" in capfd.readouterr().err


def test_missing_node_program_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LARDER_NODE_BIN", "/nowhere/larder-node")
    monkeypatch.setenv("LARDER_HOST_NODE", "nowhere")
    with pytest.raises(larder.NotFound, match="/nowhere/larder-node") as raised:
        larder.open("file:///tmp")
    assert "LARDER_NODE_BIN" in str(raised.value)
