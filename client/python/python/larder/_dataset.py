"""Datasets: opening one, and reading its samples."""

from __future__ import annotations

import json
import logging
import math
import operator
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import numpy as np

from larder import _arguments, _decode, _larder, _rows
from larder._errors import InvalidArgument, in_words_of_python
from larder._host import announce, packaged_node
from larder._loader import Loads
from larder._output import Output, convert_all, converter, each_row, sample_of, to_numpy
from larder._progress import OnProgress, Reporter, reporter
from larder._rows import Indices, Keys
from larder._samples import Samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set


@dataclass(frozen=True)
class TensorSpec:
    """A named column of a dataset: the type of an element, and the shape of one sample.

    The first dimension of a ragged tensor is None, because its rows differ in it.

    Attributes:
        dtype: the type of an element, as numpy and ml_dtypes call it.
        shape: the shape of one sample.
        logical: the meaning of the values: ``"number"``, ``"boolean"``, ``"text"``, ``"json"``,
            ``"decimal"`` (a number as text), ``"bytes"``, ``"image"``, ``"sound"``, ``"date"``
            (days since 1970-01-01), or ``"timestamp"``, ``"time"`` and ``"duration"`` with the
            unit: ``"timestamp[ms]"``.
    """

    dtype: str
    shape: tuple[int | None, ...]
    logical: str = ""

    def __post_init__(self) -> None:
        if not self.logical:
            object.__setattr__(self, "logical", "boolean" if self.dtype == "bool" else "number")


class Schema(dict[str, TensorSpec]):
    """The tensors of a dataset by name; prints as a table."""

    def __repr__(self) -> str:
        titles = ("column", "type", "meaning", "shape of a sample")
        lines = [titles, *((name, *_columns_of(spec)) for name, spec in self.items())]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = (zip(line, widths, strict=True) for line in lines)
        return "\n".join("  ".join(f"{one:<{w}}" for one, w in line).rstrip() for line in padded)


def _columns_of(spec: TensorSpec) -> tuple[str, str, str]:
    sides = ", ".join("any" if side is None else str(side) for side in spec.shape)
    return spec.dtype, spec.logical, f"[{sides}]" if spec.shape else "one value"


def specs(facts: Iterable[_larder.Facts]) -> Schema:
    """The tensors of a dataset, of the native module's facts."""
    return Schema((name, TensorSpec(dtype, tuple(shape), of)) for name, dtype, shape, of in facts)


@dataclass(frozen=True)
class _Source:
    """All that a copy of a dataset in another process needs."""

    uris: tuple[str, ...]
    cluster: str | None
    manifest: str | None
    write: Literal["auto", "never"] | None
    local: bool
    patience: float
    on_progress: OnProgress | None = None
    #: The selections, in their order.
    steps: tuple[partial[_larder.Dataset], ...] = ()

    def open(self) -> _larder.Dataset:
        native = _larder.Dataset.open(
            {
                "uris": list(self.uris),
                "cluster": self.cluster,
                "manifest": self.manifest,
                "write": self.write,
                "local": self.local,
                "patience": self.patience,
                "node_bin": packaged_node(),
            },
            reporter(self.on_progress),
        )
        announce(native)
        for step in self.steps:
            native = step(native)
        return native


def _columns(names: list[str], native: _larder.Dataset) -> _larder.Dataset:
    return native.with_columns(names)


def _range(start: int, stop: int, native: _larder.Dataset) -> _larder.Dataset:
    return native.select_range(start, stop)


def _these(indices: np.ndarray[Any, Any], native: _larder.Dataset) -> _larder.Dataset:
    return native.select_indices(indices.astype(np.uint64))


def _part(sizes: list[float], seed: int, part: int, native: _larder.Dataset) -> _larder.Dataset:
    return native.split(sizes, seed)[part]


def open(
    uri: str | Sequence[str],
    *,
    cluster: str | None = None,
    columns: Sequence[str] | None = None,
    manifest: str | None = None,
    write: Literal["auto", "never"] | None = None,
    local: bool = True,
    patience: float = 120.0,
    progress: OnProgress | None = None,
) -> Dataset:
    """Open a dataset in place: ``s3://bucket/prefix``, ``gs://``, ``az://``, ``file:///folder``.

    Args:
        uri: the prefix, with or without ``@tag`` or ``@snapshot``. Or files: one object, a list of
            addresses under one prefix, or names in braces as ``s3://bucket/data/{000..146}.tar``.
            What was never indexed is indexed now. A warning says how samples are formed of the
            files, names the manifest, and counts the files that were left out by reason.
        cluster: nodes to read through, ``http://host:port``, several separated by commas. The
            default is ``LARDER_CLUSTER``, else the node of this host. The first process that needs
            the host's node starts it. The node stops a minute after its last process has ended.
            ``"none"`` reads the origin directly.
        columns: the columns that loaders and reads gather unless they name others; by default all.
            The nodes still hold all columns. ``larder.index(uri, columns=...)`` leaves columns out
            of the shards.
        manifest: the place of the manifest if it is not beside the data. It must exist there.
        write: ``"never"`` writes nothing under the prefix. The manifest of an index then goes to
            the user's cache folder. ``"auto"`` does so only if the prefix can't be written. The
            default is ``LARDER_WRITE``, else ``"auto"``.
        local: whether to map the memory of a node on this host.
        patience: seconds for which one read retries while nodes or the origin say "try again".
        progress: a function that is called with a :class:`larder.Progress` while this call waits.
            By default a line on standard error or in the log shows it after two seconds.

    Raises:
        NotFound: there is no such prefix, tag, snapshot or column, or no ``larder-node`` to start.
        PermissionDenied: the origin or the node refuses access.
        Unavailable: the node of this host does not start.
        OriginUnavailable: the origin does not answer.
    """
    optional = _arguments.optional
    wanted = "http://host:port of a node, or 'none'"
    cluster = optional(_arguments.text, "cluster", cluster, wanted)
    cluster = cluster or os.environ.get("LARDER_CLUSTER") or None
    names = _arguments.names("columns", columns)
    steps = () if names is None else (partial(_columns, names),)
    uris = _arguments.addresses("uri", uri)
    manifest = optional(_arguments.address, "manifest", manifest)
    write = _arguments.write(write)
    local = _arguments.flag("local", local)
    wanted = "seconds from 0 to 1e9"
    patience = _arguments.real("patience", patience, 0.0, 1e9, wanted=wanted)
    on_progress = optional(_arguments.function, "progress", progress)
    return Dataset(
        _Source(tuple(uris), cluster, manifest, write, local, patience, on_progress, steps)
    )


_log = logging.getLogger("larder")


class Dataset(Loads):
    """One snapshot of a dataset; made by :func:`larder.open`."""

    _native: _larder.Dataset

    def __init__(self, source: _Source, native: _larder.Dataset | None = None) -> None:
        self._native = source.open() if native is None else native
        # Pinned, so that a copy has the same samples even if the tag has moved.
        self._source = replace(source, uris=(self._native.pinned_uri,), on_progress=None)
        #: Of reads of rows.
        self._reporter = reporter()

    @property
    def uri(self) -> str:
        """The prefix of its files."""
        return self._native.uri

    @property
    def snapshot(self) -> str:
        """The name of the snapshot: the same bytes, for ever."""
        return self._native.snapshot

    @property
    def metadata(self) -> dict[str, Any]:
        """What the index noted about the columns, such as the names of classes.

        A folder of pictures has ``{"label": {"names": [...]}}``. Arrow files of ``datasets`` have
        their features under ``"huggingface"``. ``"include"`` has the
        patterns that chose the files.
        """
        text = self._native.metadata
        noted: dict[str, Any] = json.loads(text) if text else {}
        if self.left_out:
            del noted["left_out"]
        return noted

    @property
    def left_out(self) -> dict[str, str]:
        """The columns that the index left out, each with the reason: the first 100 by name."""
        return self._left_out

    @cached_property
    def _left_out(self) -> dict[str, str]:
        columns = self._native.left_out
        return {name: in_words_of_python(why) for name, why in columns.items()}

    def _data(self) -> _larder.Mixture:
        return _larder.Mixture.alone(self._native)

    def _upright(self) -> Set[str]:
        """``datasets`` turns the pictures of its ``Image`` columns itself."""
        info = self.metadata.get("huggingface", {}).get("info", {})
        return frozenset(_decode.pictures_of(info.get("features")))

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """The tensors of each sample: the chosen columns, or all."""
        return self.schema()

    def schema(self) -> Schema:
        """The same, which prints as a table: type, meaning and shape of each column."""
        return specs(self._native.tensors)

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, index: Indices) -> dict[str, Any]:
        """One sample, or several stacked: a dict from each tensor's name to a numpy array.

        ``index`` is a number, a slice, or a choice as :meth:`take` takes it. An array of one sample
        has the shape of :attr:`tensors`. Several samples add a first dimension, the rows. Several
        rows of a ragged tensor are a :class:`larder.Ragged`.

        The arrays of one sample are views of the memory of a node on this host, if such a node
        holds it. So are those of a slice without a step within one shard. You may write to them:
        the dataset stays as it is.

        Text of one sample is a ``str``, and JSON a ``str`` with ``.json()``.

        Raises:
            IndexError: there is no such sample.
            InvalidArgument: samples can't be chosen by this.
            ValueError: a text of the sample is not UTF-8.
        """
        if type(index) is int or _is_number(index):
            try:
                number = operator.index(index)
                sample = self._native.sample(number, self._reporter)
            except OverflowError:
                self._native.refuse(str(index), None)
            return sample_of(sample, number)
        if isinstance(index, slice):
            start, stop, step = _arguments.ends(index, len(self))
            if step == 1:
                return self.rows(start, max(start, stop))
            index = range(start, stop, step)
        if isinstance(index, tuple):
            raise InvalidArgument(
                f"samples have one index, not {len(index)}", hint="give a list: ds[[3, 17]]"
            )
        return self.take(index, output="numpy")

    @overload
    def positions(self, keys: Keys) -> np.ndarray[Any, np.dtype[np.int64]]: ...

    @overload
    def positions(
        self, keys: Keys, *, missing: Literal["mask"]
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.bool_]]]: ...

    def positions(self, keys: Keys, *, missing: Literal["error", "mask"] = "error") -> Any:
        """The numbers of the samples with these keys, int64, in the order of the keys.

        The dataset must be indexed with the column of the keys: ``larder.index(uri, key="id")``.

        Args:
            keys: a list or an array of integers, or of texts.
            missing: with ``"mask"``, a key that no sample has is no error. Then the result is a
                tuple: the numbers of the samples found, and a mask of one bool a key.

        Raises:
            NotFound: a key that no sample has, or a dataset without keys.
            InvalidArgument: these are no keys.
        """
        strict = _arguments.choice("missing", missing, ("error", "mask")) == "error"
        array, found = self._native.positions(_rows.keys(keys), strict)
        positions = to_numpy(array)
        return positions if strict else (positions, np.frombuffer(found, bool))

    def take(
        self,
        indices: Indices | None = None,
        *,
        keys: Keys | None = None,
        tensors: Sequence[str] | None = None,
        out: Mapping[str, Any] | None = None,
        output: Output = "auto",
        progress: OnProgress | None = None,
    ) -> Samples:
        """The samples with these numbers or keys, stacked: a dict from each tensor to an array.

        Args:
            indices: a list, a range, an array of integers of numpy, torch or JAX, or a mask of one
                bool a sample. Keeps their order. A number may come twice, and a negative one counts
                from the end.
            keys: the keys of the samples in place of their numbers; see :meth:`positions`.
            tensors: the names of the wanted tensors; by default the columns of :func:`open`.
            out: arrays to read into, by tensor: numpy arrays or torch tensors in the memory of the
                host, of the right type and shape, in C order. Then ``take`` returns ``out``.
            output: ``"numpy"``, ``"torch"`` or ``"jax"``. By default torch if it is imported, else
                numpy.
            progress: a function that is called with a :class:`larder.Progress` while the read
                waits. By default a line on standard error or in the log shows it.

        Any number of threads may call it at once. It releases the GIL for the whole read.

        Raises:
            IndexError: there is no sample of this number. ``out`` is as it was.
            NotFound: there is no sample of this key, or no such tensor. ``out`` is as it was.
            InvalidArgument: an argument is wrong. ``out`` is as it was.
            ResourceExhausted: there is no memory for the result.
        """
        names = _arguments.names("tensors", tensors)
        if (indices is None) == (keys is None):
            raise InvalidArgument("take() needs indices or keys", hint="give one of the two")
        if out is not None and output != "auto":
            what = f"take() has out= and output={output!r}"
            raise InvalidArgument(what, hint="with out= the result is out: leave output= out")
        report = self._reporter if progress is None else _reporting(progress)
        chosen = _rows.numbers(self._native, indices) if keys is None else self.positions(keys)
        if out is None:
            convert = converter(output)
            return convert_all(self._native.take(chosen, names, report), convert, self.left_out)
        names, given = _rows.given_bytes(self._native, len(chosen), names, out)
        self._native.take_into(chosen, names, given, report)
        return Samples(out)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[dict[str, Any]]:
        """Several samples by one read, as PyTorch's data loader asks for them."""
        return each_row(self.take(indices, output="numpy"), len(indices))

    def rows(self, start: int, stop: int, *, tensors: Sequence[str] | None = None) -> Samples:
        """Samples ``start`` to ``stop - 1``, stacked.

        Rows of one shard in the memory of this host are not copied. ``tensors`` names the wanted
        tensors; by default the columns of :func:`open`.

        Raises:
            InvalidArgument: ``start`` or ``stop`` is outside the dataset.
        """
        names = _arguments.names("tensors", tensors)
        hint = f"rows are counted from 0; dataset[{start}:{stop}] counts also from the end"
        start = _arguments.integer("start", start, most=len(self), hint=hint)
        stop = _arguments.integer("stop", stop, start, len(self), hint=hint)
        rows = self._native.slice(start, stop, names, self._reporter)
        return convert_all(rows, to_numpy, self.left_out)

    def select(self, chosen: range | slice | Sequence[int] | np.ndarray[Any, Any]) -> Dataset:
        """A dataset of some samples: a range, indices, or a mask of one bool a sample.

        The samples keep their order in this dataset. For indices in another order, a warning says
        so: only the shuffle of a loader sets an order.

        Raises:
            InvalidArgument: an index is outside the dataset or comes twice, the mask has another
                length, or the selection names more than 67,108,864 indices.
        """
        if isinstance(chosen, slice):
            chosen = range(*_arguments.ends(chosen, len(self)))
        if isinstance(chosen, range) and chosen.step == 1 and chosen.start >= 0:
            step = partial(_range, chosen.start, max(chosen.start, chosen.stop))
        else:
            step = partial(_these, self._indices(chosen))
        return Dataset(self._with(step), step(self._native))

    def split(self, *fractions: float | Sequence[float], seed: int = 0) -> tuple[Dataset, ...]:
        """Disjoint random parts of these sizes, the same in every process.

        ``train, validation = ds.split(0.9)``; ``a, b, c = ds.split([0.8, 0.1, 0.1], seed=7)``. If
        the fractions sum to less than 1, the rest is one more part.
        """
        seed = _arguments.integer("seed", seed)
        sizes = _fractions(fractions)
        rest = 1.0 - math.fsum(sizes)
        if abs(rest) >= 1e-9:
            sizes.append(rest)
        parts = enumerate(self._native.split(sizes, seed))
        return tuple(
            Dataset(self._with(partial(_part, sizes, seed, number)), part) for number, part in parts
        )

    def _with(self, step: partial[_larder.Dataset]) -> _Source:
        return replace(self._source, steps=(*self._source.steps, step))

    def _indices(
        self, chosen: range | Sequence[int] | np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        if isinstance(chosen, range):
            _check_count(_length(chosen))
        chosen = _rows.listed(chosen)
        if chosen.dtype == bool:
            _check_count(int(np.count_nonzero(chosen)))
            return _rows.chosen_by(chosen, len(self))
        _check_count(chosen.size)
        outside = (chosen >= len(self)) | (chosen < -len(self))
        if outside.any():
            raise InvalidArgument(
                f"there is no sample {chosen[outside][0]}",
                f"the dataset has {len(self)}, counted from 0; -1 is the last one",
            )
        # A small type holds these numbers, but the sum below would overflow it.
        chosen = chosen.astype(np.int64)
        return _ascending(np.where(chosen < 0, chosen + len(self), chosen))

    def __reduce__(self) -> tuple[type[Dataset], tuple[_Source]]:
        return Dataset, (self._source,)

    def __eq__(self, other: object) -> bool:
        """Whether the other has the same samples in the same order."""
        if not isinstance(other, Dataset):
            return NotImplemented
        return self._native.view == other._native.view

    def __hash__(self) -> int:
        return hash(self._native.view)

    def __repr__(self) -> str:
        return (
            f"<larder.Dataset {self.uri!r} of {len(self)} samples, snapshot {self.snapshot[:12]}>"
        )


def _reporting(progress: OnProgress) -> Reporter | None:
    """The reporter of one read."""
    return reporter(_arguments.function("progress", progress))


def _is_number(index: Any) -> bool:
    """Whether an index is one integer of Python, numpy, torch or JAX, and no array of one."""
    return hasattr(index, "__index__") and not getattr(index, "ndim", 0)


def _ascending(indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The indices in ascending order. Warns if they were in another."""
    if (indices[1:] >= indices[:-1]).all():
        return indices
    ordered = np.sort(indices)
    _log.warning(
        "select() has put the indices in ascending order: sample 0 of the selection is sample "
        f"{ordered[0]}, not {indices[0]}; sort them first, and let the loader shuffle"
    )
    return ordered


def _length(numbers: range) -> int:
    """The length of a range, or the greatest that Python counts."""
    try:
        return len(numbers)
    except OverflowError:
        return sys.maxsize


def _fractions(given: tuple[float | Sequence[float], ...]) -> list[float]:
    """The sizes of a split, given one by one or as one list."""
    listed = given[0] if len(given) == 1 and isinstance(given[0], Iterable) else given
    wanted = "a list of numbers above 0 that sum to 1 or less"
    hint = "ds.split(0.9) makes two parts, ds.split([0.8, 0.1, 0.1]) three"
    sizes = [
        _arguments.real("a fraction", one, math.ulp(0.0), wanted="a number above 0", hint=hint)
        for one in _arguments.listed("fractions", listed, wanted, hint)
    ]
    if not sizes or math.fsum(sizes) >= 1.0 + 1e-9:
        raise _arguments.wrong("the list of fractions", sizes, wanted, hint)
    return sizes


def _check_count(indices: int) -> None:
    """Raises if one selection may not name so many samples. Called before any array is made."""
    if indices > _arguments.SELECTION_INDICES_MAX:
        raise InvalidArgument(
            f"{indices:,} samples can't be chosen by their numbers",
            f"one selection names at most {_arguments.SELECTION_INDICES_MAX:,}",
            "select a range whose step is 1, or split",
        )
