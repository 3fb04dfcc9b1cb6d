"""Runs the examples for Python as their readers would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from conftest import all_images
from harness import ROOT, Node, S3Server

SAMPLES, BATCH = 128, 32


@pytest.fixture(scope="module")
def uri(s3: S3Server) -> str:
    """A dataset of images, each with a label of its own."""
    folder = s3.folder / "data" / "examples"
    folder.mkdir()
    rows = {name: array[:SAMPLES] for name, array in all_images().items()}
    save_file(rows, folder / "all.safetensors")
    return "s3://data/examples"


@pytest.fixture
def example(node: Node, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs an example to its end, and returns its output."""
    monkeypatch.setenv("LARDER_CLUSTER", node.address)

    def run(name: str, *words: str) -> str:
        program = [sys.executable, ROOT / "examples" / f"{name}.py", *words]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def samples(output: str) -> list[list[int]]:
    """The samples that an example printed, batch by batch."""
    lines = [line.partition("samples [")[2] for line in output.splitlines()]
    return [json.loads(f"[{line}") for line in lines if line]


def is_complete(batches: list[list[int]]) -> bool:
    """Whether batches have every sample once."""
    return sorted(chain.from_iterable(batches)) == list(range(SAMPLES))


def test_every_example_has_a_test() -> None:
    text = Path(__file__).read_text()
    names = [path.stem for path in (ROOT / "examples").glob("*.py")]
    assert len(names) == 5
    assert [name for name in names if f'example("{name}"' not in text] == []


def test_first_batch_prints_samples_and_arrays(example: Callable[..., str], uri: str) -> None:
    output = example("first_batch", uri)
    (batch,) = samples(output)
    assert len(set(batch)) == BATCH
    assert f"{SAMPLES} samples" in output
    assert "image  uint8 [32, 32, 32, 3]" in output


def test_take_by_key_reads_rows_in_the_order_of_keys(example: Callable[..., str], uri: str) -> None:
    output = example("take_by_key", uri, "label", "55", "7", "100")
    assert samples(output) == [[55, 7, 100]]
    assert "image uint8 (3, 32, 32, 3)" in output


def test_resume_continues_after_the_last_batch(
    example: Callable[..., str], uri: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "position.json")
    batches = [batch for _ in range(3) for batch in samples(example("resume", uri, file))]
    assert [len(batch) for batch in batches] == [BATCH] * 6
    assert is_complete(batches[:4]), "an epoch, in two runs"
    assert batches[4:] != batches[:2], "the third run begins the next epoch"


def test_ranks_of_ddp_read_each_sample_once(
    example: Callable[..., str], uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    ranks = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        ranks.append(samples(example("ddp", uri)))
    assert [len(batches) for batches in ranks] == [8, 8], "two epochs of four batches"
    for epoch in (slice(0, 4), slice(4, 8)):
        assert is_complete([batch for batches in ranks for batch in batches[epoch]])


def test_gpu_copies_each_batch_over_the_standin(
    example: Callable[..., str], uri: str, standin: Path
) -> None:
    output = example("gpu", uri)
    assert is_complete(samples(output))
    assert f"{SAMPLES * (32 * 32 * 3 + 8)} bytes were copied to the GPU" in output
    said = json.loads(standin.read_text())
    assert said["mistakes_total"] == 0, said["mistakes"]
