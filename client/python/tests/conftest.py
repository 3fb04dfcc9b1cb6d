"""A real S3 server and real nodes, for every test that asks for them."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from harness import BINARIES, Node, S3Server, ring

#: Samples of the `images` dataset, in files of FILE_SAMPLES.
SAMPLES, FILE_SAMPLES = 300, 100


@pytest.fixture(scope="session", autouse=True)
def _own_host(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep nodes that datasets start by themselves to these tests, small and short-lived."""
    run = tmp_path_factory.mktemp("run")
    run.chmod(0o700)
    os.environ.update(
        XDG_RUNTIME_DIR=str(run),
        LARDER_NODE_BIN=str(BINARIES / "larder-node"),
        LARDER_MEMORY="256MiB",
        LARDER_HOST_NODE_LINGER="1s",
    )
    os.environ.pop("LARDER_CLUSTER", None)


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c() -> None:
    """Hear SIGINT also when these tests were begun in a shell's background, where it is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with the datasets of the tests in its bucket `data`."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        write_images(server.folder / "data" / "images")
        write_types(server.folder / "data" / "types")
        write_ragged(server.folder / "data" / "ragged")
        write_texts(server.folder / "data" / "texts")
        yield server


@pytest.fixture(scope="session")
def two_nodes(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """The nodes `near` and `far` in a static ring, which knows them by their addresses only.

    `s3://data/many` has the images in so many shards that each node owns some.
    """
    write_images(s3.folder / "data" / "many")
    assert larder.index("s3://data/many", shard_bytes=31_000).shards == 30
    with ring(tmp_path_factory.mktemp("ring"), "near", "far", origin="s3://data") as nodes:
        yield nodes


@pytest.fixture(scope="session")
def start_node(
    s3: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Node]]:
    """Starts nodes over the bucket; they end with the tests."""
    nodes: list[Node] = []

    def start(**options: str) -> Node:
        nodes.append(Node(tmp_path_factory.mktemp("node"), origin="s3://data", **options))
        return nodes[-1]

    yield start
    for node in nodes:
        node.stop()


@pytest.fixture(scope="session")
def node(start_node: Callable[..., Node]) -> Node:
    """A node over the bucket, shared by all tests that do not harm it."""
    return start_node()


@pytest.fixture(params=["local", "remote", "origin"])
def opened(request: pytest.FixtureRequest, node: Node) -> Callable[..., larder.Dataset]:
    """Opens a dataset by each way that rows come."""
    if request.param == "origin":
        return functools.partial(larder.open, cluster="none")
    return functools.partial(larder.open, cluster=node.address, local=request.param == "local")


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the stand-in for the CUDA driver that of child processes: the path of its report."""
    library = BINARIES / "liblarder_cuda_standin.so"
    assert library.exists(), f"{library} is missing: run `make python` first"
    folder = tmp_path / "driver"
    folder.mkdir()
    for name in ("libcuda.so", "libcuda.so.1"):
        (folder / name).symlink_to(library)
    path = tmp_path / "standin.json"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("STANDIN_REPORT", str(path))
    return path


@pytest.fixture(scope="session")
def images(s3: S3Server) -> dict[str, np.ndarray]:
    """The rows of the dataset s3://data/images."""
    return all_images()


@pytest.fixture(scope="session")
def wide(s3: S3Server) -> dict[str, np.ndarray]:
    """The rows of the dataset s3://data/wide: 20 MB in shards of 1 MiB, so that a leak shows."""
    rng = np.random.default_rng(9)
    rows = {
        "image": rng.integers(0, 256, size=(SAMPLES, 1 << 16), dtype=np.uint8),
        "label": np.arange(SAMPLES, dtype=np.int64),
    }
    folder = s3.folder / "data" / "wide"
    folder.mkdir()
    save_file(rows, folder / "all.safetensors")
    larder.index("s3://data/wide", shard_bytes=1 << 20)
    return rows


@functools.cache
def all_images() -> dict[str, np.ndarray]:
    """Noise, so that no two rows are alike. A label is the number of its row."""
    rng = np.random.default_rng(7)
    return {
        "image": rng.integers(0, 256, size=(SAMPLES, 32, 32, 3), dtype=np.uint8),
        "label": np.arange(SAMPLES, dtype=np.int64),
    }


def write_images(folder: Path) -> None:
    folder.mkdir(parents=True)
    for file, start in enumerate(range(0, SAMPLES, FILE_SAMPLES)):
        part = {name: array[start : start + FILE_SAMPLES] for name, array in all_images().items()}
        save_file(part, folder / f"part-{file:05}.safetensors")


#: Samples of the `ragged` dataset, in three files.
RAGGED_SAMPLES = 240


@functools.cache
def all_ragged() -> dict[str, list[np.ndarray]]:
    """Rows of texts and boxes, some of them empty. A label is the number of its row."""
    rng = np.random.default_rng(8)
    lengths = [0 if row % 7 == 0 else int(rng.integers(1, 700)) for row in range(RAGGED_SAMPLES)]
    return {
        "text": [rng.integers(0, 1 << 16, size=n, dtype=np.uint16) for n in lengths],
        "box": [rng.random((n % 5, 4), dtype=np.float32) for n in lengths],
        "label": list(np.arange(RAGGED_SAMPLES)),
    }


@pytest.fixture(scope="session")
def ragged(s3: S3Server) -> dict[str, list[np.ndarray]]:
    """The rows of the dataset s3://data/ragged."""
    return all_ragged()


def flat(name: str, rows: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of any length as they are saved."""
    return {name: np.concatenate(rows), f"{name}.offsets": np.cumsum([0, *map(len, rows)])}


def write_ragged(folder: Path) -> None:
    folder.mkdir(parents=True)
    for file, part in enumerate([slice(0, 100), slice(100, 101), slice(101, None)]):
        rows = {name: rows[part] for name, rows in all_ragged().items()}
        tensors = {**flat("text", rows["text"]), **flat("box", rows["box"])}
        save_file({**tensors, "label": np.array(rows["label"])}, folder / f"{file}.safetensors")


def write_texts(folder: Path) -> None:
    """The dataset of the pages."""
    folder.mkdir(parents=True)
    rows = {name: rows[:100] for name, rows in all_ragged().items()}
    tensors = {**flat("text", rows["text"]), "label": np.array(rows["label"])}
    save_file(tensors, folder / "texts.safetensors")


#: Every type that safetensors and numpy share, and those that ml_dtypes adds.
TYPES = [
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
]


@functools.cache
def all_types() -> dict[str, np.ndarray]:
    """Five rows of shape (2, 3) of each type."""
    import ml_dtypes

    values = np.arange(30).reshape(5, 2, 3)
    dtype = {name: np.dtype(getattr(ml_dtypes, name, None) or name) for name in TYPES}
    return {name: (values % 2 if name == "bool" else values).astype(dtype[name]) for name in TYPES}


def write_types(folder: Path) -> None:
    folder.mkdir(parents=True)
    save_file(all_types(), folder / "all.safetensors")


@pytest.fixture(scope="session")
def types(s3: S3Server) -> dict[str, np.ndarray]:
    """The rows of the dataset s3://data/types."""
    return all_types()
