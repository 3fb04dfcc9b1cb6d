"""Nodes know the order in which jobs read, and jobs get the right rows whatever the nodes do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import larder
import plan_job
from harness import BINARIES, TOKEN, Node, S3Server, active_nodes, member, wait_until


@pytest.fixture(scope="module")
def planned(s3: S3Server) -> str:
    """The address of a dataset of 80 shards."""
    folder = s3.folder / "data" / "planned"
    folder.mkdir()
    np.save(folder / "row.npy", plan_job.rows(np.arange(plan_job.SAMPLES)))
    assert larder.index(plan_job.URI, shard_bytes=8 * plan_job.ROW_BYTES).shards == 80
    return plan_job.URI


class Job:
    """A job in a process of its own."""

    def __init__(self, cluster: str, seed: int, epochs: int, end: Path) -> None:
        program = Path(plan_job.__file__)
        self.process = subprocess.Popen(
            [sys.executable, program, cluster, str(seed), str(epochs), end],
            stdout=subprocess.PIPE,
            text=True,
        )

    def finish_epoch(self) -> int:
        """Wait for the end of the next epoch. Its number."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the job ended"
        return int(line)

    def finish(self) -> int:
        """Wait for its end. The number of its epochs."""
        said, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0
        return int(said.split()[-1]) + 1


def test_shards_that_do_not_fit_come_whole_and_ahead(
    planned: str, s3: S3Server, tmp_path: Path
) -> None:
    """With memory for half of the data. Single rows would take some 320 GETs an epoch."""
    node = Node(tmp_path, origin="s3://data", memory="21MiB")
    loader = larder.open(planned, cluster=node.address).loader(
        8, seed=3, shuffle="window:4", job="half"
    )
    epochs, gets = 4, 0
    for epoch in range(epochs):
        before = s3.counts()["object_reads"]
        for batch in loader:
            np.testing.assert_array_equal(batch["row"], plan_job.rows(batch.samples))
            time.sleep(0.02)
        gets += s3.counts()["object_reads"] - before if epoch > 0 else 0
    assert gets < 160 * (epochs - 1)
    tool = [BINARIES / "larder", "--cluster", node.address, "node", "show", tmp_path.name]
    said = json.loads(subprocess.check_output([*tool, "-o", "json"]))
    (job,) = said["jobs"]
    assert (job["job"], job["windows"], job["loaders"]) == ("half", 20, 1)
    assert said["counters"]["prefetched_bytes"] > 0
    assert said["counters"]["given_up_shards"] > 0
    line = next(
        line for line in subprocess.check_output(tool, text=True).splitlines() if "half" in line
    )
    assert "s3://data/planned" in line
    tool = [BINARIES / "larder", "--cluster", node.address, "dataset", "ls", "-o", "json"]
    assert [job["job"] for job in json.loads(subprocess.check_output(tool))["jobs"]] == ["half"]
    node.stop()


def test_rows_are_right_while_nodes_die_and_join(
    planned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs read with memory for 0.4 of the data."""
    monkeypatch.setenv("LARDER_TOKEN", TOKEN)
    end = tmp_path / "end"
    with member(tmp_path / "first", memory="8MiB") as first:
        cluster = first.address
        join = ["--join", cluster.removeprefix("http://")]
        with member(tmp_path / "second", *join, memory="8MiB") as second:
            wait_until(lambda: len(active_nodes(cluster)) == 2)
            jobs = [Job(cluster, seed, 4, end) for seed in (1, 2)]
            for job in jobs:
                assert job.finish_epoch() == 0
            second.kill()
        with member(tmp_path / "third", *join, memory="8MiB"):
            wait_until(lambda: "third" in active_nodes(cluster))
            for job in jobs:
                job.finish_epoch()
            end.touch()
            for job in jobs:
                assert job.finish() >= 4
