"""Files of other projects, read in place: each row equals that of the project's own reader."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset

import larder
import pages
from harness import Node, S3Server

#: Files of the formats' own writers, beside their rows as the formats' own readers see them.
WRITTEN = Path(__file__).parents[3] / "proto/formats/tests/files"

Samples = list[dict[str, Any]]


def write_tars(folder: Path, samples: int = 120, seed: int = 0) -> None:
    """Write tars as users do: with names in folders, and members of many sizes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    with webdataset.ShardWriter(str(folder / "%03d.tar"), maxcount=50, verbose=0) as writer:
        for number in range(samples):
            size = int(rng.integers(0, 40_000)) if number % 9 else 0
            writer.write(
                {
                    "__key__": f"some/folder/{number:05d}",
                    "jpg": rng.bytes(size),
                    "cls": number % 10 - 3,
                    "seg.png": rng.bytes(number),
                }
            )


def tar_samples(folder: Path) -> Samples:
    """The samples as webdataset itself reads them."""
    urls = [str(tar) for tar in sorted(folder.glob("*.tar"))]
    return list(webdataset.WebDataset(urls, shardshuffle=False))


def texts(column: Any) -> list[bytes]:
    """The rows of a ragged column of bytes."""
    return [bytes(column.row(row)) for row in range(len(column.offsets) - 1)]


def check_tars(ds: larder.Dataset, samples: Samples, order: list[int] | None = None) -> None:
    """Every byte of every sample is that of webdataset."""
    order = list(range(len(samples))) if order is None else order
    rows = ds.take(order, tensors=["__key__", "jpg", "cls", "seg.png"])
    wanted = [samples[number] for number in order]
    assert texts(rows["__key__"]) == [sample["__key__"].encode() for sample in wanted]
    assert texts(rows["jpg"]) == [sample["jpg"] for sample in wanted]
    assert texts(rows["seg.png"]) == [sample["seg.png"] for sample in wanted]
    assert rows["cls"].tolist() == [int(sample["cls"]) for sample in wanted]


@pytest.fixture(scope="module")
def tars(s3: S3Server) -> Samples:
    """The samples of `s3://data/wds`."""
    folder = s3.folder / "data" / "wds"
    write_tars(folder)
    return tar_samples(folder)


def test_tars_give_the_samples_of_webdataset(
    opened: Callable[[str], larder.Dataset], tars: Samples
) -> None:
    ds = opened("s3://data/wds")
    assert len(ds) == len(tars)
    assert {name: spec.dtype for name, spec in ds.tensors.items()}["cls"] == "int64"
    check_tars(ds, tars)
    order = np.random.default_rng(1).permutation(len(tars)).tolist()
    check_tars(ds, tars, order)


def test_loader_shuffles_tars_and_resumes(node: Node, tars: Samples) -> None:
    ds = larder.open("s3://data/wds", cluster=node.address)
    loader = ds.loader(20, seed=3)
    seen, state = [], None
    for number, batch in enumerate(loader):
        assert texts(batch["jpg"]) == [tars[sample]["jpg"] for sample in batch.samples]
        seen.extend(batch.samples.tolist())
        if number == 2:
            state = loader.state_dict()
            break
    resumed = ds.loader(20, seed=3)
    resumed.load_state_dict(state)
    for batch in resumed:
        seen.extend(batch.samples.tolist())
    assert sorted(seen) == list(range(len(tars)))


def test_tars_in_a_folder_with_checksums(tmp_path: Path) -> None:
    write_tars(tmp_path / "wds", 60)
    samples = tar_samples(tmp_path / "wds")
    uri = f"file://{tmp_path}/wds"
    larder.index(uri, checksum=True, shard_bytes=100_000)
    for cluster in [None, "none"]:
        check_tars(larder.open(uri, cluster=cluster), samples)


def test_readme_lines_open_tars(tmp_path: Path) -> None:
    write_tars(tmp_path / "wds", 512)
    uri, names = "s3://bucket/laion-wds", {"larder": larder}
    exec(pages.readme(uri).replace(uri, f"file://{tmp_path}/wds"), names)
    written = [sample["jpg"] for sample in tar_samples(tmp_path / "wds")]
    assert len(names["jpegs"]) == 256
    assert set(names["jpegs"]) <= set(written)


def test_cold_tar_takes_few_requests(
    s3: S3Server, start_node: Callable[..., Node], tars: Samples
) -> None:
    own = start_node()
    ds = larder.open("s3://data/wds", cluster=own.address)
    before = s3.counts()["object_reads"]
    check_tars(ds, tars)
    # Requests begin with 64 KiB, and have no less. Each tar may end with a shorter one. The leaf is
    # read for the node, and for the listing of added objects.
    files = list((s3.folder / "data" / "wds").glob("*.tar"))
    most = sum(file.stat().st_size // (64 << 10) + 1 for file in files) + 2
    assert most < len(tars)
    assert s3.counts()["object_reads"] - before <= most


def test_tars_beyond_memory_are_read_by_range(
    s3: S3Server, start_node: Callable[..., Node]
) -> None:
    folder = s3.folder / "data" / "wds-large"
    write_tars(folder, 600)
    samples = tar_samples(folder)
    larder.index("s3://data/wds-large", shard_bytes=1 << 20)
    own = start_node(memory="4MiB")
    ds = larder.open("s3://data/wds-large", cluster=own.address)
    before, rows = s3.counts()["object_reads"], 0
    for batch in ds.loader(50, shuffle="global", seed=1, tensors=["jpg", "cls"]):
        wanted = [samples[sample] for sample in batch.samples]
        assert texts(batch["jpg"]) == [sample["jpg"] for sample in wanted]
        assert batch["cls"].tolist() == [int(sample["cls"]) for sample in wanted]
        rows += len(batch.samples)
    assert rows == len(samples)
    # A row takes one request at most; its integer stands in the leaf.
    assert s3.counts()["object_reads"] - before < len(samples)


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_samples_without_a_column(tmp_path: Path) -> None:
    members = {"a.txt": b"1", "a.cls": b"7", "b.txt": b"22", "c.txt": b"", "c.cls": b"9"}
    write_tar(tmp_path / "x.tar", members)
    uri = f"file://{tmp_path}"
    with pytest.raises(larder.InvalidArgument, match=r"sample 'b' of 'x\.tar' has no 'cls'"):
        larder.index(uri)
    assert not (tmp_path / ".larder").exists(), "nothing is published"
    report = larder.index(uri, missing="skip")
    assert report.samples == 2
    ds = larder.open(uri, cluster="none")
    assert texts(ds[:]["txt"]) == [b"1", b""]
    larder.index(uri, missing="empty", columns=["cls", "txt"])
    ds = larder.open(uri, cluster="none")
    assert list(ds.tensors) == ["cls", "txt"]
    assert ds[:]["cls"].tolist() == [7, 0, 9]
    with pytest.raises(larder.InvalidArgument, match="there is no column 'jpg'"):
        larder.index(uri, columns=["jpg"])


def test_damaged_tar_is_named(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", {"a.txt": b"1" * 5000})
    whole = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(whole[:3000])
    with pytest.raises(larder.DataLoss, match=r"x\.tar.*a\.txt"):
        larder.index(f"file://{tmp_path}")
    assert not (tmp_path / ".larder").exists(), "nothing is published"


def expected(folder: str) -> Any:
    return json.loads((WRITTEN / folder / "expected.json").read_text())


def check_column(column: Any, wanted: list[str]) -> None:
    rows = map(column.row, range(len(column.offsets) - 1)) if hasattr(column, "row") else column
    found = [np.ascontiguousarray(np.asarray(row)).tobytes() for row in rows]
    assert found == [bytes.fromhex(row) for row in wanted]


MDS = ["fixed", "many_variable", "nested", "one_variable", "pickled"]
COMPRESSED_MDS = [f"compressed_{name}" for name in ("zstd", "gz", "br", "snappy", "fixed")]


@pytest.mark.parametrize("name", MDS + COMPRESSED_MDS)
def test_mds_shards_give_their_rows(
    name: str, s3: S3Server, opened: Callable[[str], larder.Dataset]
) -> None:
    folder = s3.folder / "data" / f"mds-{name}"
    shutil.copytree(WRITTEN / "mds" / name, folder, dirs_exist_ok=True)
    ds = opened(f"s3://data/mds-{name}")
    shards = expected("mds")[name]
    for column in ds.tensors:
        wanted = [row for shard in sorted(shards) for row in shards[shard][column]]
        check_column(ds[:][column], wanted)


def test_mds_shards_of_which_some_are_compressed_give_all_rows(tmp_path: Path) -> None:
    """A cache folder of Streaming holds shards that were decompressed already."""
    name = "compressed_gz"
    shutil.copytree(WRITTEN / "mds" / name, tmp_path / "mds")
    shards = expected("mds")[name]
    index = json.loads((tmp_path / "mds" / "index.json").read_text())
    packed = tmp_path / "mds" / index["shards"][1]["zip_data"]["basename"]
    raw = tmp_path / "mds" / index["shards"][1]["raw_data"]["basename"]
    raw.write_bytes(gzip.decompress(packed.read_bytes()))
    report = larder.index(f"file://{tmp_path}/mds")
    assert not report.left_out
    ds = larder.open(f"file://{tmp_path}/mds", cluster="none")
    for column in ds.tensors:
        wanted = [row for shard in sorted(shards) for row in shards[shard][column]]
        check_column(ds[:][column], wanted)


def test_mds_compression_that_is_not_read_is_refused(tmp_path: Path) -> None:
    shutil.copytree(WRITTEN / "mds" / "compressed_zstd", tmp_path / "mds")
    index = tmp_path / "mds" / "index.json"
    index.write_text(index.read_text().replace("zstd:3", "bz2:9"))
    told = "compression 'bz2:9'.* is not read: write it with zstd, gz, br or snappy"
    with pytest.raises(larder.DataLoss, match=told):
        larder.index(f"file://{tmp_path}/mds")


@pytest.mark.parametrize("name", ["cache.stream", "kinds.file", "mixed.stream", "saved.stream"])
def test_arrow_files_give_their_rows(
    name: str, s3: S3Server, opened: Callable[[str], larder.Dataset]
) -> None:
    folder = s3.folder / "data" / f"arrow-{name}"
    folder.mkdir(exist_ok=True)
    shutil.copy(WRITTEN / "arrow" / f"{name}.arrow", folder)
    ds = opened(f"s3://data/arrow-{name}")
    wanted = expected("arrow")[f"{name}.arrow"]
    assert len(ds) == wanted["rows"]
    names = {column["name"] for column in wanted["columns"]}
    masks = {f"{name}.valid" for name in names}
    assert names <= set(ds.tensors) <= names | masks
    taken = ds[:]
    for column in wanted["columns"]:
        found = taken[column["name"]]
        if "json" in column:
            present = [json.loads(row) if row else None for row in found]
            assert present == column["json"], column["name"]
        else:
            check_column(found, column["rows"])
        if column["valid"] is not None:
            assert taken[f"{column['name']}.valid"].tolist() == column["valid"]
    if name == "saved.stream":
        features = ds.metadata["huggingface"]["info"]["features"]
        assert features["label"]["names"] == ["cat", "dog"]


def test_lines_are_samples(tmp_path: Path) -> None:
    lines = [json.dumps({"text": "x" * length}) for length in range(100)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines[:60]) + "\n\n")
    (tmp_path / "b.jsonl").write_text("\r\n".join(lines[60:]))
    ds = larder.open(f"file://{tmp_path}")
    assert texts(ds[:]["line"]) == [line.encode() for line in lines]


def test_folder_of_pictures_has_labels_and_metadata(tmp_path: Path) -> None:
    rng, pictures = np.random.default_rng(2), {}
    for folder in ["cat", "dog"]:
        (tmp_path / folder).mkdir()
        for number in range(5):
            pictures[f"{folder}/{number}.jpg"] = rng.bytes(1000 + number)
    for name, data in pictures.items():
        (tmp_path / name).write_bytes(data)
    rows = "".join(f"{name},{len(data)},about {name}\n" for name, data in pictures.items())
    (tmp_path / "metadata.csv").write_text("file_name,size,caption\n" + rows)
    ds = larder.open(f"file://{tmp_path}")
    taken = ds[:]
    names = sorted(pictures)
    assert texts(taken["__key__"]) == [name.encode() for name in names]
    assert texts(taken["data"]) == [pictures[name] for name in names]
    assert texts(taken["caption"]) == [f"about {name}".encode() for name in names]
    assert taken["label"].tolist() == [int(name >= "dog") for name in names]
    assert taken["size"].tolist() == [len(pictures[name]) for name in names]
    assert ds.metadata["label"]["names"] == ["cat", "dog"]


@pytest.mark.parametrize("ragged", [False, True])
def test_array_files_are_samples(ragged: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    written = {}
    for number in range(20):
        key = f"{'cat' if number % 2 else 'dog'}/{number:02}.npy"
        (tmp_path / key).parent.mkdir(exist_ok=True)
        shape = (number if ragged else 3, 5)
        written[key] = rng.standard_normal(shape, np.float32)
        np.save(tmp_path / key, written[key])
    uri = f"file://{tmp_path}"
    assert larder.index(uri, sample="file").samples == 20
    ds = larder.open(uri, cluster="none")
    shape = (None, 5) if ragged else (3, 5)
    assert ds.tensors["data"] == larder.TensorSpec("float32", shape)
    for number, key in enumerate(sorted(written)):
        sample = ds[number]
        assert sample["__key__"] == key
        assert sample["label"] == ["cat", "dog"].index(key.partition("/")[0])
        assert np.array_equal(sample["data"], written[key])
    np.save(tmp_path / "cat/other.npy", np.zeros((3, 6), np.float32))
    with pytest.raises(larder.InvalidArgument, match=r"other\.npy"):
        larder.index(uri, sample="file")
    with pytest.raises(larder.InvalidArgument, match=r"not for the format wds"):
        larder.index(uri, sample="file", format="wds")


def test_labels_of_metadata_count_more_than_folders(tmp_path: Path) -> None:
    for folder in ["test", "train"]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.png").write_bytes(b"1" * 1000)
        (tmp_path / folder / "metadata.csv").write_text("file_name,label\nx.png,7\ny.png,8\n")
    uri = f"file://{tmp_path}"
    report = larder.index(uri)
    why = "lists 'y.png', which is not under the prefix"
    assert report.left_out == [
        (f"{folder}/metadata.csv", None, why) for folder in ["test", "train"]
    ]
    assert larder.open(uri, cluster="none")[:]["label"].tolist() == [7, 7]
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "test/x.png", "label": 1}')
    with pytest.raises(
        larder.DataLoss, match=r"file 'x\.png': is also listed in 'metadata\.jsonl'"
    ):
        larder.index(uri)
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "test/x.png", "data": 1}')
    with pytest.raises(larder.DataLoss, match="column 'data': is the name of a column that Larder"):
        larder.index(uri)


def test_bytes_behind_the_end_of_a_tar_are_told(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"a.txt": b"1"})
    write_tar(tmp_path / "b.tar", {"b.txt": b"2" * 9000})
    joined = (tmp_path / "a.tar").read_bytes() + (tmp_path / "b.tar").read_bytes()
    (tmp_path / "wds").mkdir()
    (tmp_path / "wds" / "joined.tar").write_bytes(joined)
    report = larder.index(f"file://{tmp_path}/wds")
    behind = f"the last {len(joined) - 1024} bytes"
    assert report.left_out == [("joined.tar", behind, "lie behind the end of the tar")]
    names = [sample["__key__"] for sample in tar_samples(tmp_path / "wds")]
    assert report.samples == len(names) == 1, "as webdataset reads it"


def test_arrays_in_fortran_order_are_left_out_with_the_remedy(tmp_path: Path) -> None:
    table = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    np.save(tmp_path / "table.npy", table)
    uri = f"file://{tmp_path}"
    with pytest.raises(larder.NotFound, match=r"save np.ascontiguousarray\(array\)"):
        larder.index(uri)
    np.save(tmp_path / "table.npy", np.ascontiguousarray(table))
    np.save(tmp_path / "other.npy", table)
    report = larder.index(uri)
    assert list(report.tensors) == ["table"]
    assert [name for name, _, _ in report.left_out] == ["other.npy"]
    np.testing.assert_array_equal(larder.open(uri, cluster="none")[2]["table"], table[2])


def test_tokens_begin_behind_their_header(tmp_path: Path) -> None:
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 1000
    tokens = np.arange(1000, dtype="<u2")
    (tmp_path / "train.bin").write_bytes(header.tobytes() + tokens.tobytes())
    uri = f"file://{tmp_path}"
    with pytest.raises(larder.DataLoss, match="says that tokens are uint16 and not uint32"):
        larder.index(uri, dtype="uint32", window=100)
    for offset in [None, 1024]:
        assert larder.index(uri, dtype="uint16", window=100, offset=offset).samples == 10
        rows = larder.open(uri, cluster="none").take(range(10))["tokens"]
        np.testing.assert_array_equal(rows.reshape(-1), tokens)
    assert larder.index(uri, dtype="uint16", window=100, offset=0).samples == 15


def test_largest_format_is_the_dataset(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", {"a.txt": b"1" * 9000})
    np.save(tmp_path / "y.npy", np.zeros(10))
    report = larder.index(f"file://{tmp_path}")
    assert report.samples == 1
    why = "lies beside wds files, which are the dataset"
    assert report.left_out == [("y.npy", None, why)]
    assert larder.index(f"file://{tmp_path}", format="tensors").samples == 10
    with pytest.raises(larder.InvalidArgument, match="format='tar' is not known"):
        larder.index(f"file://{tmp_path}", format="tar")
