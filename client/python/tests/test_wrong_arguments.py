"""Every public call refuses a wrong argument by an error of Larder with a hint.

The errors of Python's own protocols stay: a missing or unknown argument is a ``TypeError``, an
index outside a sequence an ``IndexError``, and a name that a dict lacks a ``KeyError``.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from larder._options import LoaderOptions, options_of

#: Wrong for most parameters. Where one is right, the call succeeds.
WRONG: list[Any] = [
    *(None, True, -1, 0, 2**70, 1.5, float("nan"), float("inf")),
    *(
        "",
        "x",
        "\0",
        "\ud800",
        b"x",
        b"\xff",
        [],
        [None],
        [-1],
        ["x", 1],
        ["\ud800"],
        [[]],
        {},
        {"x": None},
    ),
    *(object(), np.zeros((2, 2)), np.array(["x"]), print, larder),
]

#: Calls whose errors by the native module say the reason and the right values, but have no hint.
WITHOUT_HINT = {"index(tag=)", "index(manifest=)", "index(key=)", "index(columns=)"}

Call = Callable[[Any], object]

ROWS, TEXTS = np.arange(6.0), [b"a", b"", b"ccc"]


@pytest.fixture(autouse=True)
def _bound() -> Iterator[None]:
    """Ends a call that does not return."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt("a call with a wrong argument did not return")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small folder of tensors, which is also the present folder."""
    data = tmp_path / "data"
    data.mkdir()
    ends = np.cumsum([0, *map(len, TEXTS)])
    text = np.frombuffer(b"".join(TEXTS), np.uint8)
    save_file({"x": ROWS[:3], "text": text, "text.offsets": ends}, data / "a.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return f"file://{data}"


@pytest.fixture
def dataset(uri: str) -> larder.Dataset:
    return larder.open(uri, cluster="none")


def refusals(calls: dict[str, Call], allowed: type[Exception] | tuple[()] = ()) -> list[str]:
    """The calls that fail otherwise than by an error of Larder with a hint."""
    found = []
    for name, call in calls.items():
        for value in WRONG:
            said = f"{name} of {value!r}"
            try:
                result = call(value)
            except larder.Error as error:
                if not error.hint and name not in WITHOUT_HINT:
                    found.append(f"{said}: no hint: {error}")
                continue
            except allowed:
                continue
            except Exception as error:
                found.append(f"{said}: {type(error).__name__}: {error}")
                continue
            if isinstance(result, larder.Node):
                result.stop()
    return found


def by_keyword(function: Callable[..., object], names: str, **given: Any) -> dict[str, Call]:
    """Calls of a function with each of the named parameters wrong, and the others right."""

    def call(name: str) -> Call:
        return lambda value: function(**{**given, name: value})

    return {f"{function.__name__}({name}=)": call(name) for name in names.split()}


def test_open_refuses_wrong_arguments_with_a_hint(uri: str) -> None:
    names = "uri columns manifest write local patience"
    calls = by_keyword(larder.open, names, uri=uri, cluster="none")
    assert not refusals(calls)


def test_open_refuses_wrong_clusters_with_a_hint(uri: str) -> None:
    assert not refusals(by_keyword(larder.open, "cluster", uri=uri, patience=0.1))


def test_index_refuses_wrong_arguments_with_a_hint(uri: str) -> None:
    names = (
        "uri tag dtype window stride offset column between shard_bytes checksum manifest write "
        "key include format sample columns missing bad progress"
    )
    assert not refusals(by_keyword(larder.index, names, uri=uri))


def test_serve_refuses_wrong_arguments_with_a_hint(uri: str) -> None:
    calls = by_keyword(larder.serve, "memory origins listen args", memory="64MiB", origins=[uri])
    assert not refusals(calls)


def test_mix_refuses_wrong_arguments_with_a_hint(dataset: larder.Dataset) -> None:
    calls = by_keyword(larder.mix, "datasets seed stop", datasets={dataset: 1.0})
    calls |= {
        "mix([ds, value])": lambda value: larder.mix([dataset, value]),
        "mix([value, value])": lambda value: larder.mix([value, value]),
        "mix([(ds, value)])": lambda value: larder.mix([(dataset, value)]),
        "mix([(value, 1)])": lambda value: larder.mix([(value, 1)]),
    }
    assert not refusals(calls)


def test_mix_of_datasets_without_weights_says_how_to_give_them(dataset: larder.Dataset) -> None:
    with pytest.raises(larder.InvalidArgument, match="weight") as raised:
        larder.mix([dataset, dataset])  # type: ignore[list-item]
    assert raised.value.hint is not None


def test_split_of_nothing_asks_for_fractions(dataset: larder.Dataset) -> None:
    for call in (lambda: dataset.split(), lambda: dataset.split([])):
        with pytest.raises(larder.InvalidArgument, match="fraction") as raised:
            call()
        assert raised.value.hint is not None


def test_reads_of_a_dataset_refuse_wrong_arguments_with_a_hint(dataset: larder.Dataset) -> None:
    calls = {
        "ds[value]": dataset.__getitem__,
        "ds[value:]": lambda value: dataset[value:],
        "ds[::value]": lambda value: dataset[::value],
        "__getitems__": dataset.__getitems__,
        "positions(value)": dataset.positions,
        **by_keyword(dataset.positions, "missing", keys=[1]),
        **by_keyword(dataset.take, "indices keys"),
        **by_keyword(dataset.take, "tensors out output", indices=[0]),
        "take(out={x: value})": lambda value: dataset.take([0], tensors=["x"], out={"x": value}),
        **by_keyword(dataset.rows, "start stop tensors", start=0, stop=1),
    }
    assert not refusals(calls, IndexError)


def test_parts_of_a_dataset_refuse_wrong_arguments_with_a_hint(dataset: larder.Dataset) -> None:
    calls = {
        "select(value)": dataset.select,
        "split(value)": dataset.split,
        "split(0.5, value)": lambda value: dataset.split(0.5, value),
        "split([value])": lambda value: dataset.split([value]),
        "split(seed=)": lambda value: dataset.split(0.5, seed=value),
        **by_keyword(dataset.locality, "hosts"),
    }
    assert not refusals(calls)


@pytest.mark.parametrize("kind", ["dataset", "mixture"])
def test_loader_refuses_wrong_options_with_a_hint(kind: str, dataset: larder.Dataset) -> None:
    data = dataset if kind == "dataset" else larder.mix({dataset: 1.0})
    names = " ".join(["batch_size", *options_of(LoaderOptions)])
    assert not refusals(by_keyword(data.loader, names, batch_size=1))
    calls = {
        "decode={x: value}": lambda value: data.loader(1, decode={"x": value}),
        "rank of two": lambda value: data.loader(1, rank=value, world_size=2),
        "world_size of rank 0": lambda value: data.loader(1, rank=0, world_size=value),
    }
    assert not refusals(calls)


def test_loader_refuses_wrong_states_with_a_hint(dataset: larder.Dataset) -> None:
    loader = dataset.loader(1)
    calls = {
        "loader[value]": loader.__getitem__,
        "set_epoch": loader.set_epoch,
        "load_state_dict": loader.load_state_dict,
        "load_state_dict of text": lambda value: loader.load_state_dict({"larder": value}),
    }
    assert not refusals(calls)


def test_locality_refuses_other_contents_with_a_hint() -> None:
    assert not refusals({"Locality.from_bytes()": larder.Locality.from_bytes})


def test_decoders_refuse_wrong_arguments_with_a_hint() -> None:
    calls = {
        **by_keyword(
            larder.Image, "size crop flip color filter dtype orient part scale ratio", size=8
        ),
        **by_keyword(larder.Audio, "frames channels start sample_rate", frames=8),
    }
    assert not refusals(calls)


def test_ragged_refuses_wrong_arguments_with_a_hint() -> None:
    column = larder.Ragged.of([np.zeros(2), np.zeros(1)])
    calls = {
        "Ragged.of": larder.Ragged.of,
        "Ragged.of([value])": lambda value: larder.Ragged.of([value]),
        "column[value]": column.__getitem__,
        "column[value:]": lambda value: column[value:],
        "column[::value]": lambda value: column[::value],
        "row": column.row,
    }
    assert not refusals(calls, IndexError)


def test_torch_classes_refuse_wrong_arguments_with_a_hint(dataset: larder.Dataset) -> None:
    torch = pytest.importorskip("larder.torch")
    samples = torch.Dataset(dataset)
    items = torch.IterableDataset(dataset, 1)
    order = torch.BatchSampler(dataset, 1)
    calls = {
        **by_keyword(torch.Dataset, "dataset tensors", dataset=dataset),
        **by_keyword(torch.IterableDataset, "dataset batch_size batched", dataset=dataset),
        **by_keyword(torch.BatchSampler, "dataset batch_size seed", dataset=dataset),
        "Dataset[value]": samples.__getitem__,
        "Dataset.__getitems__": samples.__getitems__,
        "IterableDataset.set_epoch": items.set_epoch,
        "IterableDataset.load_state_dict": items.load_state_dict,
        "BatchSampler.set_epoch": order.set_epoch,
        "BatchSampler.load_state_dict": order.load_state_dict,
    }
    assert not refusals(calls, IndexError)


def test_grain_source_refuses_wrong_arguments_with_a_hint(dataset: larder.Dataset) -> None:
    grain = pytest.importorskip("larder.grain")
    source = grain.DataSource(dataset)
    calls = {
        **by_keyword(grain.DataSource, "dataset tensors", dataset=dataset),
        "DataSource[value]": source.__getitem__,
        "DataSource._getitems": source._getitems,
    }
    assert not refusals(calls, IndexError)
