"""Batches in page-locked memory. There need be no GPU: ordinary memory stands in for torch's."""

from __future__ import annotations

import gc
import io
import os
import tarfile
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import larder
import torch_transforms
from harness import Node
from larder import _pinned

Images = dict[str, np.ndarray]
Rows = dict[str, list[np.ndarray]]

OPTIONS: dict[str, Any] = {"shuffle": "global", "seed": 5, "last": "uneven", "output": "torch"}


class Gpu:
    """Records the allocations that torch would make on a host with a GPU."""

    def __init__(self) -> None:
        #: Bytes of each allocation, by address; addresses may come again.
        self.sizes: list[int] = []
        self.copies = 0
        self._blocks: list[weakref.ref[np.ndarray]] = []

    def allocate(self, size: int) -> torch.Tensor:
        """Memory of the wanted size. It records when its last view is gone."""
        room = np.full(size + 64, 0xEE, np.uint8)
        block = room[-room.ctypes.data % 64 :][:size]
        self.sizes.append(size)
        self._blocks.append(weakref.ref(block))
        return torch.from_numpy(block)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        self.copies += 1
        return tensor.clone()

    def addresses(self) -> list[int]:
        """The addresses of the blocks that are still in use."""
        blocks = [block() for block in self._blocks]
        return [block.ctypes.data for block in blocks if block is not None]

    def has(self, batch: larder.Batch) -> bool:
        """Whether all of a batch is in one block."""
        return len(storages(batch)) == 1 and storages(batch) <= set(self.addresses())

    def wait_for(self, blocks: int, dataset: larder.Dataset) -> None:
        """Waits until no more are left: threads that still fetch may need a moment."""
        deadline = time.monotonic() + 60
        while len(self.addresses()) > blocks:
            assert time.monotonic() < deadline, f"{len(self.addresses())} are left"
            gc.collect()
            dataset.loader(1)._native.epoch(0, None).close()
        assert len(self.addresses()) == blocks


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    monkeypatch.setattr(_pinned, "allocate", gpu.allocate)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: gpu.copy(tensor))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return gpu


@pytest.fixture
def dataset(node: Node) -> larder.Dataset:
    return larder.open("s3://data/images", cluster=node.address)


def storages(batch: larder.Batch) -> set[int]:
    """The addresses of the blocks under a batch's tensors: one, if allocated for the batch."""
    leaves = [value.data if isinstance(value, larder.Ragged) else value for value in batch.values()]
    return {leaf.untyped_storage().data_ptr() for leaf in leaves}


def check(batch: larder.Batch, images: Images) -> None:
    np.testing.assert_array_equal(batch["image"].numpy(), images["image"][batch.samples])
    np.testing.assert_array_equal(batch["label"].numpy(), images["label"][batch.samples])


@pytest.mark.parametrize("asked", ["auto", True])
def test_pinned_batches_equal_ordinary_batches(
    asked: Any, dataset: larder.Dataset, images: Images, gpu: Gpu
) -> None:
    loader = dataset.loader(32, **OPTIONS, pin_memory=asked)
    other = dataset.loader(32, **OPTIONS, pin_memory=False)
    batches = 0
    for pinned, ordinary in zip(loader, other, strict=True):
        check(pinned, images)
        assert pinned.samples.tolist() == ordinary.samples.tolist()
        for name, tensor in pinned.items():
            assert torch.equal(tensor, ordinary[name])
            assert tensor.is_contiguous()
        assert gpu.has(pinned)
        assert not storages(ordinary) & set(gpu.addresses())
        assert pinned.state_dict() == ordinary.state_dict()
        batches += 1
    assert len(gpu.sizes) == batches == 10, "one for each batch, the short one too"
    assert len(set(gpu.sizes)) == 1
    assert gpu.copies == 0
    assert loader.stats()["copies_per_byte"] == 1


def write_pictures(folder: Path, kind: str) -> None:
    """Thirty pictures and their numbers, in a tar or in a Parquet file."""
    pictures = []
    for number in range(30):
        out = io.BytesIO()
        Image.new("RGB", (40 + number, 30), (number, 9 * number % 256, 7)).save(out, "PNG")
        pictures.append(out.getvalue())
    if kind == "parquet":
        table = pa.table({"jpg": pictures, "cls": range(30)})
        pq.write_table(table, folder / "0.parquet", row_group_size=8)
        return
    with tarfile.open(folder / "0.tar", "w") as tar:
        for number, picture in enumerate(pictures):
            for suffix, data in (("jpg", picture), ("cls", str(number).encode())):
                member = tarfile.TarInfo(f"{number:02}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize("decode", [None, {"jpg": larder.Image(24, crop="random", flip=True)}])
@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_members_and_decoded_pictures_are_page_locked(
    kind: str, decode: Any, gpu: Gpu, tmp_path: Path
) -> None:
    write_pictures(tmp_path, kind)
    options = {**OPTIONS, "decode": decode, "tensors": ["jpg", "cls"]}
    dataset = larder.open(f"file://{tmp_path}", cluster="none")
    loader = dataset.loader(7, **options, pin_memory=True)
    ordinary = dataset.loader(7, **options, pin_memory=False)
    for pinned, other in zip(loader, ordinary, strict=True):
        assert gpu.has(pinned)
        assert pinned.samples.tolist() == pinned["cls"].tolist() == other.samples.tolist()
        ours, theirs = (
            (batch["jpg"],) if decode else (batch["jpg"].data, batch["jpg"].offsets)
            for batch in (pinned, other)
        )
        assert all(map(torch.equal, ours, theirs))
    assert gpu.copies == (0 if decode else len(loader)), "the begins of ragged rows are copied"


def test_held_pinned_batches_keep_their_bytes_without_leaks(
    dataset: larder.Dataset, images: Images, gpu: Gpu
) -> None:
    loader = dataset.loader(5, **OPTIONS, prefetch=4, pin_memory=True)
    kept = list(loader)
    assert len(kept) == 60
    assert sorted(block for batch in kept for block in storages(batch)) == sorted(gpu.addresses())
    assert len(list(loader)) == 60
    for batch in kept:
        check(batch, images)
    label = kept[7]["label"]
    del kept, batch
    gpu.wait_for(1, dataset)
    del loader, label
    gpu.wait_for(0, dataset)


def test_dropped_batch_frees_memory_before_the_next_batch(
    dataset: larder.Dataset, gpu: Gpu
) -> None:
    batches = iter(dataset.loader(1, **OPTIONS, tensors=["image"], prefetch=1))
    # Room for eight ready small batches, one that is fetched, one in use and one to come.
    for _ in range(100):
        del next(batches)["image"]
        assert len(gpu.addresses()) <= 8 + 1 + 1 + 1
    del batches
    gpu.wait_for(0, dataset)


def test_left_and_interleaved_epochs_leak_no_memory(
    dataset: larder.Dataset, images: Images, gpu: Gpu
) -> None:
    loader = dataset.loader(16, **OPTIONS, prefetch=8)
    one, other = iter(loader), iter(loader)
    kept = []
    for _ in range(3):
        kept += [next(one), next(other)]
    unbegun = iter(loader)
    del one, other, unbegun
    gpu.wait_for(6, dataset)
    for batch in kept:
        check(batch, images)
    del batch, kept
    gpu.wait_for(0, dataset)


def test_resumed_epochs_and_padded_batches_are_pinned(
    dataset: larder.Dataset, images: Images, gpu: Gpu
) -> None:
    options = {**OPTIONS, "last": "pad"}
    whole = [batch.samples.tolist() for batch in dataset.loader(32, **options)]
    loader = dataset.loader(32, **options)
    first = next(iter(loader))
    resumed = dataset.loader(32, **options)
    resumed.load_state_dict(first.state_dict())
    rest = list(resumed)
    assert [batch.samples.tolist() for batch in [first, *rest]] == whole
    assert rest[-1].padding == 20
    for batch in [first, *rest]:
        check(batch, images)
        assert gpu.has(batch)


def test_contiguous_rows_are_gathered_into_pinned_memory(
    node: Node, images: Images, gpu: Gpu
) -> None:
    dataset = larder.open("s3://data/images", cluster=node.address)
    options: dict[str, Any] = {"shuffle": "none", "output": "torch"}
    for pin_memory, copies in [(False, 0), (True, 1), (False, 0)]:
        deadline = time.monotonic() + 60
        while True:  # until the node has handed its shards out
            loader = dataset.loader(25, **options, pin_memory=pin_memory)
            for batch in loader:
                check(batch, images)
                assert gpu.has(batch) == pin_memory
            if loader.stats()["copies_per_byte"] == copies:
                break
            assert time.monotonic() < deadline


def test_ragged_rows_get_pinned_memory_of_their_size(node: Node, ragged: Rows, gpu: Gpu) -> None:
    dataset = larder.open("s3://data/ragged", cluster=node.address)
    batches = 0
    for batch in dataset.loader(16, **OPTIONS):
        assert gpu.has(batch)
        for name in ("text", "box"):
            rows = batch[name].rows()
            for row, sample in zip(rows, batch.samples.tolist(), strict=True):
                np.testing.assert_array_equal(row.numpy(), ragged[name][sample])
        assert batch["label"].tolist() == batch.samples.tolist()
        batches += 1
    assert len(gpu.sizes) == batches == 15
    assert len(set(gpu.sizes)) > 1
    assert gpu.copies == 2 * batches, "offsets are page-locked too, by a copy"


def test_rows_without_bytes_allocate_no_pinned_memory(node: Node, gpu: Gpu) -> None:
    dataset = larder.open("s3://data/ragged", cluster=node.address).select([0, 7, 14, 21])
    for batch in dataset.loader(2, **OPTIONS, tensors=["text", "box"]):
        assert batch["text"].data.shape == (0,)
        assert batch["box"].data.shape == (0, 4)
    assert gpu.sizes == []


def test_every_type_can_be_pinned(node: Node, types: Images, gpu: Gpu) -> None:
    dataset = larder.open("s3://data/types", cluster=node.address)
    (batch,) = dataset.loader(5, shuffle="none", output="torch", pin_memory=True)
    assert gpu.has(batch)
    for name, expected in types.items():
        tensor = batch[name]
        assert tensor.dtype == getattr(torch, name)
        assert tensor.shape == (5, 2, 3)
        assert tensor.view(torch.uint8).numpy().tobytes() == expected.tobytes(), name


def test_mixture_batches_are_pinned(dataset: larder.Dataset, images: Images, gpu: Gpu) -> None:
    mixture = larder.mix({dataset.select(range(100)): 0.5, dataset.select(range(100, 300)): 0.5})
    batches = 0
    for batch in mixture.loader(16, **OPTIONS):
        shift = np.where(batch.sources == 1, 100, 0)
        assert batch["label"].tolist() == batch.samples.tolist()
        assert set(shift.tolist()) == {0, 100}
        np.testing.assert_array_equal(batch["image"].numpy(), images["image"][batch.samples])
        assert gpu.has(batch)
        batches += 1
    assert batches == len(gpu.sizes)


@pytest.mark.parametrize("where", [{"workers": 0}, {"workers": 2}])
def test_results_of_transforms_are_copied_to_pinned_memory(
    where: dict[str, Any], dataset: larder.Dataset, images: Images, gpu: Gpu
) -> None:
    for batch in dataset.loader(50, **OPTIONS, transform=torch_transforms.to_bfloat16, **where):
        expected = torch.from_numpy(images["image"][batch.samples]).to(torch.bfloat16) / 2
        assert torch.equal(batch["image"], expected)
    assert gpu.copies == 6 * len(batch)
    assert gpu.sizes == []


def test_ragged_result_is_pinned_and_other_types_are_not(dataset: larder.Dataset, gpu: Gpu) -> None:
    sparse = torch.eye(3).to_sparse()

    def change(batch: dict[str, Any]) -> dict[str, Any]:
        row = larder.Ragged(batch["label"], torch.tensor([0, len(batch["label"])]))
        return {"ragged": row, "words": ["a", "b"], "sparse": sparse, "meta": sparse.to("meta")}

    batch = next(iter(dataset.loader(50, **OPTIONS, batch_transform=change)))
    assert gpu.copies == 2
    assert isinstance(batch["ragged"], larder.Ragged)
    assert batch["words"] == ["a", "b"]
    assert batch["sparse"] is sparse


def test_epochs_of_a_forked_child_use_ordinary_memory(
    dataset: larder.Dataset, images: Images, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = dataset.loader(16, **OPTIONS, prefetch=4)
    batches = iter(loader)
    first = next(batches)
    child = os.fork()
    if child == 0:
        # As torch answers in a child of a program that uses a GPU.
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
        allocated = len(gpu.sizes)
        try:
            with pytest.raises(larder.InvalidArgument, match="a fork leaves behind"):
                next(batches)
            del batches
            for batch in loader:
                check(batch, images)
            check(first, images)
            assert len(gpu.sizes) == allocated
        except BaseException:
            os._exit(1)
        os._exit(0)
    for batch in batches:
        check(batch, images)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    check(first, images)


def test_program_without_a_gpu_pins_nothing(
    dataset: larder.Dataset, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pinned, "allocate", None)
    for batch in dataset.loader(50, **OPTIONS):
        check(batch, images)
    assert not torch.cuda.is_initialized()


def test_pinning_is_decided_when_an_epoch_begins(
    dataset: larder.Dataset, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    loader = dataset.loader(50, **OPTIONS)
    next(iter(loader))
    assert gpu.sizes == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    next(iter(loader))
    assert gpu.sizes != []
    allocated = len(gpu.sizes)
    next(iter(dataset.loader(50, output="numpy")))
    assert len(gpu.sizes) == allocated


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pin_memory": 1}, "pin_memory is 1"),
        ({"pin_memory": True, "output": "jax"}, "batches of jax can't be page-locked"),
        ({"pin_memory": True, "output": "torch"}, "torch finds no GPU here"),
    ],
)
def test_impossible_pinning_options_are_refused(
    options: dict[str, Any], says: str, dataset: larder.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(larder.InvalidArgument, match=says):
        dataset.loader(50, **options)


def test_lack_of_pinned_memory_is_an_error(
    dataset: larder.Dataset, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    loader = dataset.loader(50, **OPTIONS)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "empty", full)
        with pytest.raises(larder.ResourceExhausted, match="out of memory"):
            next(iter(loader))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for batch in loader:
        check(batch, images)


@pytest.mark.parametrize("shift", [-1, 1])
def test_memory_too_small_for_a_batch_is_refused(dataset: larder.Dataset, shift: int) -> None:
    def allocate(size: int) -> torch.Tensor:
        return torch.empty(size + shift, dtype=torch.uint8)[max(shift, 0) :]

    with pytest.raises(larder.InternalError, match="are no memory for a batch"):
        dataset.loader(50, **OPTIONS)._native.epoch(0, allocate)
