"""Records in Parquet, read by eight processes at once. Each reads its share, in order."""

from __future__ import annotations

import multiprocessing
import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contest import Batch, Contender, Subject

#: Processes of a contender.
PROCESSES = 8

#: Files, one or more for each process.
FILES = 16

#: Records of a batch.
BATCH = 1024

#: Elements of the list in a record.
LIST = 64


def write(folder: Path, records: int) -> None:
    """Writes records of four columns, 280 bytes each, with the defaults of pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "records").mkdir()
    rng = np.random.default_rng(3)
    for number, ids in enumerate(np.array_split(np.arange(records), FILES)):
        features = rng.standard_normal(len(ids) * LIST, np.float32)
        table = {
            "id": ids,
            "label": rng.integers(0, 1000, len(ids)),
            "score": rng.standard_normal(len(ids)),
            "features": pa.FixedSizeListArray.from_arrays(features, LIST),
        }
        pq.write_table(pa.table(table), folder / f"records/{number:02}.parquet")


def subject(folder: Path, records: int, node: int) -> Subject:
    """All contenders."""
    files = folder / "records"
    contenders: list[Contender] = [
        Datasets("datasets, NumPy format", "datasets", files),
        Scanner("pyarrow scanner", "pyarrow", files),
        Ours("larder", "larder", files, helpers=[node]),
    ]
    title = f"{records:,} records of Parquet, {PROCESSES} processes, warm"
    return Subject("records", title, records, contenders, _sum, _count, 1)


def _sum(batch: Batch) -> int:
    return int(batch["sum"])


def _count(batch: Batch) -> int:
    return int(batch["count"])


@dataclass
class _Shared(Contender):
    """Processes that each read a share of the records."""

    files: Path

    @abstractmethod
    def begin(self, rank: int) -> None:
        """Opens the share of a rank, in its own process."""

    @abstractmethod
    def batches(self) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        """An epoch of the share."""

    def open(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipes = []
        for rank in range(PROCESSES):
            ours, theirs = spawn.Pipe()
            spawn.Process(target=_serve, args=(self, rank, theirs), daemon=True).start()
            theirs.close()
            self._pipes.append(ours)
        for pipe in self._pipes:
            pipe.recv()

    def epoch(self, number: int) -> Iterator[Batch]:  # noqa: ARG002
        for pipe in self._pipes:
            pipe.send(True)
        for pipe in self._pipes:
            yield pipe.recv()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_pipes"}


def _serve(shared: _Shared, rank: int, pipe: Any) -> None:
    """The main function of a process."""
    shared.begin(rank)
    pipe.send(True)
    try:
        while pipe.recv():
            count = total = 0
            for batch in shared.batches():
                features = batch["features"]
                assert features.shape[1:] == (LIST,)
                assert features[:, 0].dtype == np.float32
                count += len(batch["id"])
                total += int(batch["id"].sum()) + int(batch["label"].sum())
            pipe.send({"count": count, "sum": total})
    except EOFError:
        pass


@dataclass
class Ours(_Shared):
    """`Dataset.loader` through the node of this host; a rank is a process."""

    def begin(self, rank: int) -> None:
        import larder

        dataset = larder.open(f"file://{self.files}")
        self._loader = dataset.loader(
            BATCH,
            shuffle="none",
            last="uneven",
            output="numpy",
            rank=rank,
            world_size=PROCESSES,
        )

    def batches(self) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        return iter(self._loader)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_loader"}


@dataclass
class Datasets(_Shared):
    """The Arrow files that `load_dataset` makes of Parquet, memory-mapped."""

    def open(self) -> None:
        # The processes find the converted data, which only one of them could make.
        self._load()
        super().open()

    def begin(self, rank: int) -> None:
        shard = self._load().shard(PROCESSES, rank, contiguous=True)
        self._share = shard.with_format("numpy")

    def batches(self) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        return iter(self._share.iter(BATCH))

    def _load(self) -> Any:
        cache = str(self.files.parent / "datasets")
        os.environ["HF_HOME"] = cache
        import datasets

        datasets.disable_progress_bars()
        files = sorted(map(str, self.files.glob("*.parquet")))
        return datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache)


@dataclass
class Scanner(_Shared):
    """Files of the share, decoded from the page cache in each epoch."""

    def begin(self, rank: int) -> None:
        from pyarrow import dataset

        files = sorted(map(str, self.files.glob("*.parquet")))[rank::PROCESSES]
        self._dataset = dataset.dataset(files)

    def batches(self) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        for batch in self._dataset.scanner(batch_size=BATCH, use_threads=False).to_batches():
            rows = {name: batch[name].to_numpy() for name in ("id", "label", "score")}
            flat = batch["features"].flatten().to_numpy()
            yield rows | {"features": flat.reshape(-1, LIST)}
