"""What users do with a dataset also works on tars and on Parquet files."""

from __future__ import annotations

import os
import pickle
import subprocess
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import larder
from harness import BINARIES, HANG_SECONDS, TOKEN, S3Server, active_nodes, member, ring
from test_formats import tar_samples, texts, write_tar, write_tars
from test_parquet import write_many

#: The rows of a column of bytes, and its name.
Written = tuple[str, list[bytes]]


def written_tars(folder: Path) -> Written:
    write_tars(folder, 200)
    return "jpg", [sample["jpg"] for sample in tar_samples(folder)]


def written_parquet(folder: Path) -> Written:
    images = write_many(folder, 200)["image"].to_pylist()
    return "image.bytes", [image["bytes"] if image else b"" for image in images]


@pytest.fixture(scope="module", params=["tar", "parquet"])
def written(request: pytest.FixtureRequest, s3: S3Server) -> tuple[str, str, list[bytes]]:
    """The address of a dataset of a format, with checksums, and the rows of a column."""
    folder = s3.folder / "data" / f"used-{request.param}"
    name, rows = (written_tars if request.param == "tar" else written_parquet)(folder)
    uri = f"s3://data/used-{request.param}"
    assert larder.index(uri, checksum=True, shard_bytes=4096).shards > 2
    return uri, name, rows


def test_rows_come_from_a_peer(
    s3: S3Server, written: tuple[str, str, list[bytes]], tmp_path: Path
) -> None:
    """One node fills all shards. The other, which comes to own half of them, asks it."""
    uri, name, rows = written
    with ring(tmp_path, "near", "far", origin="s3://data") as nodes:
        for node in nodes:
            ds = larder.open(uri, cluster=node.address, local=False)
            assert texts(ds[:][name]) == rows


def test_ring_changes_while_it_reads(
    written: tuple[str, str, list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second node joins, takes half of the shards, and is drained."""
    uri, name, rows = written
    monkeypatch.setenv("LARDER_TOKEN", TOKEN)

    def epochs_until(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG_SECONDS
        for number in count():
            seen: list[int] = []
            loader.set_epoch(number)
            for batch in loader:
                assert texts(batch[name]) == [rows[sample] for sample in batch.samples]
                seen.extend(batch.samples.tolist())
            assert sorted(seen) == list(range(len(rows)))
            if done():
                return
            assert time.monotonic() < deadline

    with member(tmp_path / "first") as first:
        larder_cli = [BINARIES / "larder", "--cluster", first.address]
        loader = larder.open(uri, cluster=first.address, local=False).loader(20, seed=9)
        epochs_until(lambda: True)

        def has_joined() -> bool:
            return len(active_nodes(first.address)) == 2

        with member(tmp_path / "second", "--join", first.address.removeprefix("http://")):
            epochs_until(has_joined)
            with subprocess.Popen(
                [*larder_cli, "node", "drain", "second", "-y", "--follow"]
            ) as drain:
                epochs_until(lambda: drain.poll() is not None)
            assert drain.returncode == 0
        epochs_until(lambda: True)


def test_checksums_hold(written: tuple[str, str, list[bytes]]) -> None:
    uri, name, rows = written
    assert texts(larder.open(uri, cluster="none")[:][name]) == rows
    said = subprocess.run(
        [BINARIES / "larder", "dataset", "verify", uri],
        capture_output=True,
        text=True,
        env=os.environ | {"LARDER_CLUSTER": "none"},
        check=False,
    )
    assert said.returncode == 0, said.stderr


def test_loader_resumes_and_explains(
    written: tuple[str, str, list[bytes]], opened: Callable[[str], larder.Dataset]
) -> None:
    uri, name, rows = written
    ds = opened(uri)
    loader, seen, state = ds.loader(20, seed=5), [], {}
    for number, batch in enumerate(loader):
        seen.extend(batch.samples.tolist())
        if number == 3:
            state = loader.state_dict()
            break
    assert str(loader.explain()).startswith("4 batches of 80 samples")
    resumed = ds.loader(20, seed=5)
    resumed.load_state_dict(state)
    for batch in resumed:
        assert texts(batch[name]) == [rows[sample] for sample in batch.samples]
        seen.extend(batch.samples.tolist())
    assert sorted(seen) == list(range(len(rows)))


def test_mixture_of_formats(s3: S3Server, opened: Callable[[str], larder.Dataset]) -> None:
    tars, parquet = s3.folder / "data" / "mixed-tar", s3.folder / "data" / "mixed-parquet"
    if not tars.exists():
        write_tars(tars, 100)
        parquet.mkdir()
        pictures = [bytes([number]) * number for number in range(100)]
        pq.write_table(pa.table({"jpg": pictures}), parquet / "0.parquet", row_group_size=30)
    rows = [
        [sample["jpg"] for sample in tar_samples(tars)],
        [bytes([number]) * number for number in range(100)],
    ]
    mixture = larder.mix([(opened(f"s3://data/mixed-{kind}"), 0.5) for kind in ("tar", "parquet")])
    seen: set[int] = set()
    for batch in mixture.loader(20, seed=2, tensors=["jpg"]):
        assert batch.sources is not None
        places = list(zip(batch.sources.tolist(), batch.samples.tolist(), strict=True))
        assert texts(batch["jpg"]) == [rows[source][sample] for source, sample in places]
        seen.update(source for source, _ in places)
    assert seen == {0, 1}


def test_columns_of_a_dataset(
    written: tuple[str, str, list[bytes]], opened: Callable[..., larder.Dataset]
) -> None:
    uri, name, rows = written
    ds = opened(uri, columns=[name])
    assert list(ds.tensors) == list(ds[3]) == list(ds[1:5]) == [name]
    assert texts(ds.take([5, 2])[name]) == [rows[5], rows[2]]
    assert {tuple(batch) for batch in pickle.loads(pickle.dumps(ds)).loader(20)} == {(name,)}
    (half, _) = ds.split(0.5)
    assert list(half.tensors) == [name]
    assert len(ds.take([1], tensors=list(opened(uri).tensors))) > 1
    with pytest.raises(larder.NotFound, match="no tensor 'smell'"):
        larder.open(uri, cluster="none", columns=["smell"])


def test_only_files_that_match_are_indexed(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        write_tar(tmp_path / part / "0.tar", {"a.txt": part.encode(), "a.cls": b"1"})
    uri = f"file://{tmp_path}"
    assert larder.index(uri, include="test/*.tar", tag="test").samples == 1
    part = larder.open(f"{uri}@test", cluster="none")
    assert part[0]["txt"] == "test"
    assert part.metadata == {"include": "test/*.tar"}
    assert larder.index(uri, include="**/*.tar").samples == 2
    with pytest.raises(larder.NotFound, match="none of 2 objects matches"):
        larder.index(uri, include="*.tar")
    with pytest.raises(larder.NotFound, match=r"no object '000\.tar' and 146 more"):
        larder.open(f"{uri}/{{000..146}}.tar", cluster="none")
    with pytest.raises(larder.InvalidArgument, match="include"):
        larder.index(uri, include="[a")
