"""Batches in the memory of GPUs, as far as the stand-in for the driver can tell.

Each test runs a program of ``device_programs`` as a child with a driver of its own, and judges its
output and the report of the stand-in.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import device_rows
import larder
import test_decode
from conftest import write_types
from device_child import Ended, run_child
from device_rows import BATCH, BATCHES, EVEN, SAMPLES, bytes_of
from harness import BINARIES

#: A process that has lost its device ends sooner.
LOST_SECONDS = 20
PAGE_LOCKED = "batches are copied through page-locked memory"
LEAVE_OUT = "or leave `device` out"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the stand-in has the name of the driver."""
    folder = tmp_path_factory.mktemp("driver")
    standin = BINARIES / "liblarder_cuda_standin.so"
    assert standin.exists(), f"{standin} is missing: build the tests' programs first"
    (folder / "libcuda.so").symlink_to(standin)
    (folder / "libcuda.so.1").symlink_to("libcuda.so")
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dataset, held open so that the children share one node of the host."""
    uri = device_rows.write(tmp_path_factory.mktemp("device") / "rows")
    dataset = device_rows.opened(uri)
    yield uri
    del dataset
    gc.collect()


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset of a column of each type."""
    folder = tmp_path_factory.mktemp("device") / "types"
    write_types(folder)
    return f"file://{folder}"


Run = Callable[..., Ended]


@pytest.fixture
def run(library: Path, rows: str, tmp_path: Path) -> Run:
    """Runs a program with settings of the stand-in, and arguments; ``uri`` is the dataset."""

    def run(program: str, *, libraries: Path = library, **options: Any) -> Ended:
        return run_child(program, tmp_path / program, libraries, **{"uri": rows, **options})

    return run


def cannot_use(device: str, why: str, hint: str) -> dict[str, str]:
    return {"type": "NotFound", "text": f"device '{device}' can't be used: {why}\nhint: {hint}"}


# The matrix.


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("way", ["staged", "direct"])
def test_every_byte_arrives_for_each_way_shuffle_and_type(way: str, devices: int, run: Run) -> None:
    ended = run("matrix", way=way, devices=devices, standin={"DEVICES": devices})
    said = ended.check()
    assert len(said["epochs"]) == 2 * (1 + len(EVEN) + 1) * 2
    offsets = 8 * (SAMPLES + BATCHES)
    for epoch in said["epochs"]:
        names = epoch["names"] or [*EVEN, "ragged"]
        assert epoch["batches"] == BATCHES
        rows_bytes = devices * bytes_of(names)
        offsets_bytes = devices * offsets if "ragged" in names else 0
        assert epoch["device_bytes"] == rows_bytes + offsets_bytes
        if way == "staged":
            assert epoch["copied_bytes"] == rows_bytes
            assert epoch["staged_bytes"] == epoch["device_bytes"]
        elif epoch["epoch"] == 1:
            assert epoch["copied_bytes"] == 0
            assert epoch["viewed_bytes"] == rows_bytes
            assert epoch["staged_bytes"] == offsets_bytes
    counts = ended.report["counts"]
    assert (counts["direct_bytes"] > 0) == (way == "direct")
    assert (counts["registered_bytes_max"] > 0) == (way == "direct")


@pytest.mark.parametrize("way", ["staged", "direct"])
def test_rows_of_a_mixture_and_overlapping_windows_arrive(
    way: str, run: Run, tmp_path: Path
) -> None:
    numbers, mixed = np.random.default_rng(5), []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        rows = numbers.integers(0, 256, (60, 40_000), np.uint8)
        np.save(tmp_path / name / "row.npy", rows)
        mixed.append(f"file://{tmp_path / name}")
        larder.index(mixed[-1], shard_bytes=1 << 20)
    (tmp_path / "tokens").mkdir()
    numbers.integers(0, 1 << 16, 1_000_000, np.uint16).tofile(tmp_path / "tokens" / "a.bin")
    tokens = f"file://{tmp_path / 'tokens'}"
    larder.index(tokens, dtype="uint16", window=40_000, stride=20_000, shard_bytes=1 << 20)
    ended = run("mixture_and_windows", mixed=mixed, tokens=tokens, way=way)
    said = ended.check()
    assert said["viewed"] == [way == "direct"] * 3
    assert (ended.report["counts"]["direct_bytes"] > 0) == (way == "direct")


@pytest.mark.parametrize("way", ["staged", "direct"])
def test_rows_of_tars_and_parquet_arrive_also_decoded(way: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "tar").mkdir()
    test_decode.write(tmp_path / "tar")
    (tmp_path / "parquet").mkdir()
    pictures = [test_decode.encoded(number) for number in range(test_decode.COUNT)]
    table = pa.table({"jpg": pictures, "cls": range(len(pictures))})
    pq.write_table(table, tmp_path / "parquet" / "0.parquet", row_group_size=15)
    files = {kind: f"file://{tmp_path / kind}" for kind in ("tar", "parquet")}
    for uri in files.values():
        larder.index(uri, shard_bytes=1 << 14)
    said = run("formats", files=files, way=way).check()
    assert said["compared"] == 4 * -(-len(pictures) // BATCH)


def test_staged_batch_is_one_copy(run: Run) -> None:
    staged = run("copies", way="staged", names=["f32"])
    assert staged.check()["batches"] == BATCHES
    assert staged.calls("cuMemcpyHtoDAsync_v2") == BATCHES
    assert staged.calls("cuMemcpyBatchAsync") == 0
    assert staged.report["counts"]["copies"] == BATCHES


def test_two_columns_that_fill_their_batch_are_one_staged_copy(run: Run) -> None:
    staged = run("copies", way="staged", names=list(EVEN), batch=4)
    batches = staged.check()["batches"]
    assert staged.calls("cuMemcpyHtoDAsync_v2") == staged.report["counts"]["copies"] == batches


def test_contiguous_rows_are_one_direct_copy_per_shard(run: Run) -> None:
    direct = run("copies", way="direct", names=["f32"])
    said = direct.check()
    assert BATCHES <= direct.report["counts"]["copies"] <= BATCHES + said["shards"]
    assert direct.report["counts"]["pinned_bytes"] == 0


# Tensors.

#: DLPack's code and bits, and the type of the CUDA array interface, which lacks some.
TYPES: dict[str, tuple[int, int, str | None]] = {
    "bool": (6, 8, "|b1"),
    "uint8": (1, 8, "|u1"),
    "uint16": (1, 16, "<u2"),
    "uint32": (1, 32, "<u4"),
    "uint64": (1, 64, "<u8"),
    "int8": (0, 8, "|i1"),
    "int16": (0, 16, "<i2"),
    "int32": (0, 32, "<i4"),
    "int64": (0, 64, "<i8"),
    "float16": (2, 16, "<f2"),
    "float32": (2, 32, "<f4"),
    "float64": (2, 64, "<f8"),
    "complex64": (5, 64, "<c8"),
    "bfloat16": (4, 16, None),
    "float8_e4m3fn": (10, 8, None),
    "float8_e5m2": (12, 8, None),
}


def test_tensor_attributes_agree_in_every_protocol(run: Run, types: str) -> None:
    said = run("tensors", uri=types).check()
    assert set(said["facts"]) == set(TYPES)
    shape = [5, 2, 3]
    for name, facts in said["facts"].items():
        code, bits, kind = TYPES[name]
        interface: dict[str, Any] = {
            "shape": shape,
            "typestr": kind,
            "strides": None,
            "stream": 1,
            "version": 3,
            "read_only": False,
        }
        if kind is None:
            text = f"the CUDA array interface has no {name}: use DLPack"
            interface = {"type": "AttributeError", "text": text}
        assert facts == {
            "shape": shape,
            "dtype": name,
            "device": "cuda:0",
            "nbytes": 30 * bits // 8,
            "len": 5,
            "repr": f"larder.DeviceTensor(shape=[5, 2, 3], dtype={name}, device=cuda:0)",
            "dlpack_device": [2, 0],
            "dlpack": {
                "device": [2, 0],
                "dtype": [code, bits, 1],
                "shape": shape,
                "strides": [6, 3, 1],
                "byte_offset": 0,
            },
            "interface": interface,
        }
    stream = "stream 0 could be either default stream: say 1 for the legacy one, 2 for the "
    assert said["refused"] == {
        "stream": {"type": "BufferError", "text": stream + "per-thread one"},
        "device": {
            "type": "BufferError",
            "text": "this tensor is on cuda:0: import it there, then copy it",
        },
        "copy": {"type": "BufferError", "text": "this tensor is exported without a copy only"},
    }


def test_stream_named_by_consumer_waits_for_the_bytes(run: Run) -> None:
    run("consumer", standin={"DELAY_US": 2000}).check()


def test_block_is_rewritten_only_after_queued_reads(
    run: Run,
) -> None:
    said = run("early_deleter", standin={"DELAY_US": 2000}).check()
    assert said["batches"] == 8 * BATCHES
    assert said["allocated"] < said["batches"] / 2, "blocks are used again"


# torch.


def test_torch_batch_is_views_of_a_block_that_it_alone_holds(run: Run) -> None:
    said = run("in_torch", standin={"DELAY_US": 500}).check()
    assert said["blocks"] == said["sizes"] == said["handed_back"] == 2 * BATCHES
    assert said["asked_too_small"] == 0
    last = SAMPLES % device_rows.BATCH
    assert said["shapes"] == {
        "u8": [last, 32768],
        "f16": [last, 128, 128],
        "f32": [last, 64, 128],
        "i64": [last, 4096],
    }
    assert said["types"] == {
        "u8": "torch.uint8",
        "f16": "torch.float16",
        "f32": "torch.float32",
        "i64": "torch.int64",
        "data": "torch.uint16",
        "offsets": "torch.int64",
    }
    assert said["streams"] == [0]
    assert said["alive"] == 0


def test_allocating_and_using_torch_streams_wait_for_bytes(run: Run) -> None:
    said = run("torch_streams", standin={"DELAY_US": 2000}).check()
    assert said["batches"] == 3 * BATCHES
    assert said["elsewhere"] > 0, "some are used on another stream than they were allocated on"
    assert said["alive"] == 0


def test_torch_blocks_are_held_until_queued_copies_end(run: Run) -> None:
    said = run("torch_left_early", standin={"DELAY_US": 2000}).check()
    assert said["alive"] == [2, 3, 0]


def test_epoch_can_continue_after_torch_out_of_memory(run: Run) -> None:
    said = run("torch_out_of_memory").check()
    assert said["said"] == [{"type": "RuntimeError", "text": "CUDA out of memory"}] * 3
    assert said["alive"] == 0


# Bad input.


def test_missing_driver_error_has_a_hint(run: Run, tmp_path: Path) -> None:
    hint = f"install the driver, start the container with GPUs, {LEAVE_OUT}"
    why = "no NVIDIA driver (libcuda.so) was found"
    said = run("no_loader", libraries=tmp_path / "empty").said
    assert said["loader"] == cannot_use("cuda:0", why, hint)
    assert said["devices"] == []


def test_file_that_is_not_a_library_counts_as_no_driver(run: Run, tmp_path: Path) -> None:
    for name in ("libcuda.so", "libcuda.so.1"):
        (tmp_path / name).write_text("INPUT(libcuda)")
    said = run("no_loader", libraries=tmp_path).said
    hint = f"install the driver, start the container with GPUs, {LEAVE_OUT}"
    assert said["loader"] == cannot_use("cuda:0", "no NVIDIA driver (libcuda.so) was found", hint)


def test_toolkit_stub_is_refused_with_its_version(run: Run, library: Path) -> None:
    ended = run("no_loader", standin={"STUB": 1})
    ended.check_order()
    path = (library / "libcuda.so").resolve()
    assert ended.said["loader"] == cannot_use(
        "cuda:0",
        f"{path} (CUDA 12.8) is the toolkit's stub for linking, and no driver; "
        "a driver for CUDA 12.0 or later is needed",
        f"take the folder of stubs out of LD_LIBRARY_PATH, {LEAVE_OUT}",
    )


def test_old_driver_is_refused_with_its_version(run: Run, library: Path) -> None:
    ended = run("no_loader", standin={"VERSION": 11040})
    ended.check_order()
    path = (library / "libcuda.so").resolve()
    why = f"{path} is for CUDA 11.4, and a driver for CUDA 12.0 or later is needed"
    hint = f"install a newer driver, {LEAVE_OUT}"
    assert ended.said["loader"] == cannot_use("cuda:0", why, hint)
    text = f"GPUs can't be listed: {why}\nhint: {hint}"
    assert ended.said["devices"] == {"type": "NotFound", "text": text}


def test_oldest_supported_driver_copies_row_by_row(run: Run) -> None:
    ended = run("copies", way="direct", names=["f32"], shuffle="global", standin={"VERSION": 12000})
    ended.check()
    assert ended.calls("cuMemcpyBatchAsync") == 0
    # Rows that are neighbours by chance are one copy.
    assert BATCHES < ended.calls("cuMemcpyHtoDAsync_v2") <= SAMPLES


def test_driver_without_a_device_is_refused(run: Run) -> None:
    ended = run("no_loader", standin={"DEVICES": 0})
    ended.check_order()
    hint = f"look at CUDA_VISIBLE_DEVICES and at nvidia-smi, {LEAVE_OUT}"
    assert ended.said["loader"] == cannot_use("cuda:0", "the driver finds 0 GPUs", hint)
    assert ended.said["devices"] == []


@pytest.mark.parametrize(
    ("devices", "device", "found"),
    [(1, "cuda:1", "1 GPU, cuda:0"), (2, "cuda:5", "2 GPUs, cuda:0 to cuda:1")],
)
def test_unknown_device_error_has_the_device_count(
    devices: int, device: str, found: str, run: Run
) -> None:
    ended = run("no_loader", device=device, standin={"DEVICES": devices})
    ended.check_order()
    hint = "choose one of them, or name more in CUDA_VISIBLE_DEVICES"
    assert ended.said["loader"] == cannot_use(device, f"this process sees {found}", hint)
    assert len(ended.said["devices"]) == devices


def test_device_out_of_memory_error_has_byte_counts(
    run: Run,
) -> None:
    # Room for 4 blocks of this size, and for 24 of one sample each.
    wanted, total = device_rows.BATCH * device_rows.ROW_BYTES, 800_000
    said = run("out_of_memory", standin={"MEMORY": total}).check()
    assert said["said"] == {
        "type": "ResourceExhausted",
        "text": f"device 'cuda:0' has no memory for a batch of {wanted} bytes: "
        f"{total - 4 * wanted} of its {total} bytes are free\n"
        "hint: lower batch_size or prefetch, or free memory of the device",
    }
    assert said["state"].startswith("larder-state/1/")


def test_loader_survives_lack_of_page_locked_memory(run: Run) -> None:
    wanted = device_rows.BATCH * device_rows.ROW_BYTES
    said = run("out_of_pages", standin={"FAIL": "cuMemHostAlloc:2@1"}).check()
    assert said["said"] == {
        "type": "ResourceExhausted",
        "text": f"there are no {wanted} bytes of page-locked memory for a batch\n"
        "hint: lower batch_size or prefetch",
    }


@pytest.mark.parametrize(
    ("standin", "why"),
    [
        ({"READ_ONLY": 0}, "it registers no pages that a process can only read"),
        (
            {"FAIL": "cuMemHostRegister_v2:801"},
            "cuMemHostRegister returned CUDA_ERROR_NOT_SUPPORTED",
        ),
    ],
    ids=["by the attribute", "by the call"],
)
def test_refused_registration_warns_once_and_stages_batches(
    standin: dict[str, object], why: str, run: Run
) -> None:
    said = run("refused", standin=standin).check()
    refused = f"device 'cuda:0' refused to register pages of the cache: {why}"
    ((kind, text, file),) = said["warnings"]
    assert kind == "UserWarning"
    assert text == (f"{PAGE_LOCKED}: {refused}; device_way='staged' says so without this warning")
    assert Path(file).name == "device_programs.py", "it is of the line of the loop"
    assert f"copies from the pages of the cache were refused: {refused}" in said["explained"]
    assert said["refused"] == refused
    assert said["staged_refused"] is None
    hint = "\nhint: say device_way='auto' or 'staged'"
    assert said["direct"] == {"type": "InvalidArgument", "text": refused + hint}
    assert said["staged_share"] == 1


@pytest.mark.parametrize(
    ("way", "call", "code", "name"),
    [
        ("staged", "cuMemcpyHtoDAsync_v2", "700@5", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("direct", "cuMemcpyBatchAsync", "700@5", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("staged", "cuEventQuery", "719@20", "CUDA_ERROR_LAUNCH_FAILED"),
    ],
)
def test_lost_device_ends_the_loop_and_frees_nothing(
    way: str, call: str, code: str, name: str, run: Run
) -> None:
    ended = run("lost", way=way, standin={"FAIL": f"{call}:{code}"}, seconds=LOST_SECONDS)
    ended.check_order()
    said = ended.said
    hint = "start this process again: the device answers nothing else until then"
    # After the loss of the device every call reports it. A call of another thread may be the first.
    text = rf"device 'cuda:0' is lost: cu\w+ returned {name}\nhint: {hint}"
    for told in (said["said"], said["another"]):
        assert told["type"] == "Unavailable"
        assert re.fullmatch(text, told["text"])
    assert said["said"] == said["again"] == said["read"]
    assert said["state"].startswith("larder-state/1/")
    left = ended.report["left"]
    assert left["device_allocations"] == ended.calls("cuMemAlloc_v2") > 0
    assert left["host_allocations"] == ended.calls("cuMemHostAlloc")
    assert left["registrations"] == ended.calls("cuMemHostRegister_v2")
    for freed in ("cuMemFree_v2", "cuMemFreeHost", "cuMemHostUnregister"):
        assert ended.calls(freed) == 0


NVIDIA = "batches go to the memory of NVIDIA GPUs"
HOST = "say device='cuda' or 'cuda:0', or leave it out for the memory of the host"


def same(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": "cpu"}, f"device is 'cpu': {NVIDIA}\nhint: {HOST}"),
        ({"device": "mps"}, f"device is 'mps': {NVIDIA}\nhint: {HOST}"),
        ({"device": "cuda:x"}, f"device is 'cuda:x': {NVIDIA}\nhint: {HOST}"),
        ({"device": "cuda:-1"}, f"device is 'cuda:-1': {NVIDIA}\nhint: {HOST}"),
        ({"device": ""}, f"device is '': {NVIDIA}\nhint: {HOST}"),
        ({"device": 3}, f"device is 3: {NVIDIA}\nhint: {HOST}"),
        (
            {"device": "cuda", "pin_memory": True},
            "pin_memory=True beside a device: batches on a device are not in the memory of the "
            "host\nhint: leave pin_memory out",
        ),
        (
            {"device": "cuda", "output": "numpy"},
            "arrays of numpy are in the memory of the host\nhint: say output='torch', 'jax' or "
            "'device', or leave device out",
        ),
        *(
            (
                {"device": "cuda", "output": output, kind: same},
                f"a transform beside a device and output='{output}': transforms run on the host, "
                "and it is torch that copies what they return\nhint: say output='torch', or leave "
                "device out and copy what the loader brings",
            )
            for output in ("device", "jax")
            for kind in ("transform", "batch_transform")
        ),
        (
            {"device": "cuda", "device_way": "fast"},
            "device_way is 'fast'\nhint: give 'auto', 'staged' or 'direct'",
        ),
        (
            {"device_way": "fast"},
            "device_way is 'fast'\nhint: give 'auto', 'staged' or 'direct'",
        ),
        (
            {"output": "device"},
            "there is no output 'device' without a device\nhint: say 'auto', 'numpy', 'torch' or "
            "'jax'; with device='cuda' also 'device'",
        ),
        (
            {"device": "cuda", "output": "tensorflow"},
            "there is no output 'tensorflow'\nhint: say 'auto', 'numpy', 'torch' or 'jax'; with "
            "device='cuda' also 'device'",
        ),
    ],
)
def test_bad_arguments_are_refused_before_driver_lookup(
    options: dict[str, Any], text: str, rows: str
) -> None:
    with pytest.raises(larder.InvalidArgument) as refused:
        larder.open(rows).loader(4, **options)
    assert str(refused.value) == text


# Processes.


def test_forked_child_gets_an_error_and_calls_no_driver(run: Run) -> None:
    ended = run("forked", standin={"DELAY_US": 500})
    said = ended.check()
    assert list(ended.reports) == [said["process"]], "the child called no driver function"
    assert said["code"] == 0
    why = "this process was forked from one that uses a GPU, and its driver works there only"
    hint = "start processes by 'spawn' or 'forkserver', or use the device in the parent alone"
    begun = "this epoch was begun in the parent process, whose threads a fork leaves behind"
    for what, told in said["said"].items():
        assert told["type"] == "InvalidArgument", what
        if what == "next":
            assert told["text"].startswith(begun)
        else:
            done = "GPUs can't be listed" if what == "devices" else "device 'cuda:0' can't be used"
            assert told["text"] == f"{done}: {why}\nhint: {hint}", what


def test_child_forked_before_driver_use_has_its_own_device(run: Run) -> None:
    assert run("forked_first").said == {"code": 0}


def test_device_in_a_data_loader_worker_is_refused(run: Run) -> None:
    said = run("worker").check()
    hint = "iterate the loader without a DataLoader: it fetches ahead by itself"
    refused = {
        "type": "InvalidArgument",
        "text": "device 'cuda:0' in DataLoader worker 1 of 4: a worker hands its batches over in "
        f"the memory of the host\nhint: {hint}",
    }
    assert said["made_with_rank"] == said["unpickled"] == refused
    assert said["made"]["text"].startswith("a loader is made in DataLoader worker 1 of 4: ")


def test_pickled_and_resumed_loaders_match_host_batches(run: Run) -> None:
    run("resumed", standin={"DELAY_US": 200}).check()


# Leaving.


def test_tensors_outlive_loaders_and_left_loops_leak_nothing(run: Run) -> None:
    said = run("left_early", standin={"DELAY_US": 5000}).check()
    assert said["error"] == {"type": "RuntimeError", "text": "5"}


@pytest.mark.parametrize("way", ["staged", "direct"])
def test_device_dropped_under_queued_copies_frees_nothing(way: str, run: Run) -> None:
    run("all_goes_at_once", way=way, standin={"DELAY_US": 20_000}).check()


@pytest.mark.parametrize("way", ["staged", "direct"])
def test_interpreter_exits_cleanly_while_copies_run(way: str, run: Run) -> None:
    ended = run("ended", way=way, standin={"DELAY_US": 5000})
    ended.check_order()
    assert ended.report["counts"]["copies"] > 0
    assert "Error" not in ended.warned


# Facts.


def test_devices_and_copied_bytes_are_reported(run: Run) -> None:
    said = run("facts", standin={"DEVICES": 2, "MEMORY": 1 << 28, "VERSION": 12040}).check()
    assert said["devices"] == [
        {
            "device": f"cuda:{ordinal}",
            "name": "Stand-in",
            "memory_bytes": 1 << 28,
            "driver": "12.4",
            "registers_pages": True,
        }
        for ordinal in range(2)
    ]
    copied = bytes_of(["f32"])
    assert said["process"]["device_bytes"] == said["process"]["staged_bytes"] == copied
    assert said["loader"] == {"device_bytes": copied, "staged_bytes": copied, "bytes": copied}
    assert said["refused"] is None


def test_output_jax_imports_tensors_on_the_stream_of_jax(run: Run) -> None:
    said = run("in_jax", standin={"DELAY_US": 500}).check()
    assert said["taken"] == BATCHES * (len(EVEN) + 2), "of a ragged column the offsets too"
