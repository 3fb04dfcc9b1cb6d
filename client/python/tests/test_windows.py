"""Windows over documents: samples of one length over a ragged column of integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

import larder
from harness import Node, S3Server

WINDOW, STRIDE = 33, 32


def documents(seed: int, count: int = 120) -> list[np.ndarray[Any, Any]]:
    """Documents of random lengths, some of them empty."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 90, count) * (rng.random(count) > 0.1)
    return [rng.integers(1, 50_000, int(length)).astype(np.uint16) for length in lengths]


def write(path: Path, docs: list[np.ndarray[Any, Any]], kind: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "safetensors":
        offsets = np.cumsum([0, *map(len, docs)], dtype=np.int64)
        tensors = {"tokens": np.concatenate(docs), "tokens.offsets": offsets}
        save_file(tensors, f"{path}.safetensors")
        return
    column = pa.array([doc.tolist() for doc in docs], pa.list_(pa.uint16()))
    table = pa.table({"tokens": column, "id": range(len(docs))})
    if kind == "parquet":
        pq.write_table(table, f"{path}.parquet", row_group_size=17)
        return
    options = pa.ipc.IpcWriteOptions(compression="zstd" if kind == "zstd" else None)
    with pa.ipc.new_file(f"{path}.arrow", table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=17)


def expected(files: list[list[np.ndarray[Any, Any]]], between: int | None) -> Any:
    """The windows over each file's documents, and the places where documents begin."""
    windows, segments = [], []
    for docs in files:
        stream, begins = [], []
        for doc in docs:
            if len(doc):
                begins.append(len(stream))
            stream += [*doc.tolist(), *([] if between is None else [between])]
        for at in range(0, len(stream) - WINDOW + 1, STRIDE):
            windows.append(stream[at : at + WINDOW])
            segments.append([begin - at for begin in begins if at <= begin < at + WINDOW])
    return windows, segments


@pytest.mark.parametrize("between", [None, 0])
@pytest.mark.parametrize("kind", ["parquet", "arrow", "zstd", "safetensors"])
def test_windows_cross_documents_and_never_files(
    tmp_path: Path, kind: str, between: int | None
) -> None:
    files = [documents(1), documents(2)]
    for number, docs in enumerate(files):
        write(tmp_path / str(number), docs, kind)
    uri = f"file://{tmp_path}"
    report = larder.index(
        uri, column="tokens", window=WINDOW, stride=STRIDE, between=between, shard_bytes=4096
    )
    windows, segments = expected(files, between)
    assert report.samples == len(windows)
    assert report.shards > 1
    ds = larder.open(uri, cluster="none")
    rows = ds.take(range(len(ds)), output="numpy")
    assert rows["tokens"].tolist() == windows
    assert [row.tolist() for row in rows["__segments__"]] == segments
    loader = ds.loader(4, seed=3, output="numpy", tensors=["tokens", "__segments__"])
    seen = [row for batch in loader for row in batch["tokens"].tolist()]
    assert len(seen) == len(windows) // 4 * 4
    assert {tuple(row) for row in seen} <= {tuple(row) for row in windows}


def test_nodes_serve_windows(s3: S3Server, two_nodes: list[Node]) -> None:
    files = [documents(3)]
    write(s3.folder / "data" / "docs" / "a", files[0], "parquet")
    uri = "s3://data/docs"
    larder.index(uri, column="tokens", window=WINDOW, stride=STRIDE, between=7, shard_bytes=4096)
    ds = larder.open(uri, cluster=two_nodes[0].address)
    rows = ds.take(range(len(ds)), output="numpy")
    assert rows["tokens"].tolist() == expected(files, 7)[0]


def test_windows_are_refused_over_other_columns(tmp_path: Path) -> None:
    table = pa.table({"tokens": [[1, 2]], "text": ["a"], "x": [1.0], "f": [[0.5]]})
    pq.write_table(table, tmp_path / "a.parquet")
    uri = f"file://{tmp_path}"
    for column, why in [
        ("text", "ragged column of integers"),
        ("x", "ragged column of integers"),
        ("f", "ragged column of integers"),
        ("y", "there is no column 'y'"),
    ]:
        with pytest.raises(larder.InvalidArgument, match=why):
            larder.index(uri, column=column, window=2)
    with pytest.raises(larder.NotFound, match="fewer elements than a window of 3"):
        larder.index(uri, column="tokens", window=3)
    with pytest.raises(larder.InvalidArgument, match="between"):
        larder.index(uri, column="tokens", window=1, between=2**63)
    with pytest.raises(larder.InvalidArgument, match="column and window"):
        larder.index(uri, column="tokens")
