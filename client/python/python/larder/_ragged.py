"""Rows of different lengths, and the values that they stand for.

One rule holds wherever a row comes alone: ``column[row]``, iteration, ``ds[3]``, a sample of a
DataLoader, and the sample that a transform gets. The column's logical type decides:

- Text and decimal numbers are a ``str``. JSON is a :class:`JsonText`, a ``str`` with ``.json()``.
- All other rows are arrays: views of the column's data. So are bytes, pictures and sound.

``column.row(i)`` is the array in each case, and ``column.data`` has the bytes of all rows.

Thread rule: values. Non-goals: computing with such rows. Frameworks have types of their own for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Self, SupportsIndex, overload

import numpy as np

from larder import _arguments, _frameworks
from larder._errors import InvalidArgument

#: The logical types of columns with rows of text.
TEXTS = frozenset({"text", "json", "decimal"})
#: Those of columns with rows of bytes.
BYTES = frozenset({"bytes", "image", "sound"})

#: Rows, and letters of a text, that a printed column shows.
_SHOWN_ROWS = 3
_SHOWN_LETTERS = 40


class JsonText(str):
    """A row of a JSON column: its text, and its value by :meth:`json`."""

    __slots__ = ()

    def json(self) -> Any:
        """The parsed document."""
        return json.loads(self)


class Ragged:
    """A column with rows that differ in their first dimension: a sequence of its rows.

    ``len(column)`` counts rows, ``column[3]`` and iteration give rows, and ``column[2:5]`` is a
    column of some rows that shares their memory. A row of text is a ``str``, of JSON a
    :class:`JsonText`, and any other row an array.

    The rows lie one after the other in ``data``. Frameworks that move a batch move both arrays:
    the column has ``to`` and ``pin_memory`` as torch's tensors have, and is a node of JAX's trees.

    Attributes:
        data: the elements of all rows, ``[offsets[-1], ...]``; of text and bytes, uint8.
        offsets: int64, one more than rows. Row ``r`` is ``data[offsets[r]:offsets[r + 1]]``.
        logical: the meaning of the values, as in :class:`TensorSpec`.
        name: the column's name for errors; may be empty.
    """

    __slots__ = ("data", "logical", "name", "offsets")

    data: Any
    offsets: Any
    logical: str
    name: str

    def __init__(self, data: Any, offsets: Any, logical: str = "number", name: str = "") -> None:
        # JAX rebuilds columns of any objects, so nothing is checked here.
        self.data, self.offsets, self.logical, self.name = data, offsets, logical, name
        _frameworks.register_with_jax()

    @classmethod
    def of(cls, rows: Iterable[Any]) -> Self:
        """A column of these rows, in numpy arrays. There must be at least one row.

        Rows are arrays that differ in their first dimension only, or all texts, or all ``bytes``.
        """
        wanted = "one array, text or bytes or more"
        hint = "rows are arrays that differ in their first dimension only, or all texts, or bytes"
        listed = _arguments.listed("rows", rows, wanted, hint)
        logical = logical_of(listed[0]) if listed else "number"
        try:
            arrays = [as_row(row) for row in listed]
            ends = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int64)
            return cls(np.concatenate(arrays), ends, logical)
        except (TypeError, ValueError) as error:
            raise _arguments.wrong("rows", listed, wanted, hint) from error

    @property
    def lengths(self) -> Any:
        """The number of elements of each row: int64, one for each row."""
        return self.offsets[1:] - self.offsets[:-1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """A row, or for a slice a column of these rows; a negative index counts from the end.

        Raises:
            IndexError: there is no such row.
            ValueError: the row is text, and its bytes are not UTF-8. ``row()`` has them.
        """
        if not isinstance(index, slice):
            row = self.row(index)
            return row if self.logical not in TEXTS else self._text(_on_host(row).tobytes(), index)
        start, stop, step = _arguments.ends(index, len(self))
        if step != 1:
            raise InvalidArgument(
                f"a larder.Ragged has no slice of step {step}",
                hint="use [column[i] for i in range(...)]",
            )
        offsets = self.offsets[start : max(start, stop) + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        return type(self)(self.data[begin:end], offsets - begin, self.logical, self.name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._texts() if self.logical in TEXTS else self.rows())

    def row(self, index: SupportsIndex) -> Any:
        """One row as an array, a view of the data; a negative index counts from the end.

        Raises:
            IndexError: there is no such row.
        """
        rows, at = len(self), _arguments.row(index)
        position = at + rows if at < 0 else at
        if not 0 <= position < rows:
            raise IndexError(f"there is no row {at} of {rows}")
        return self.data[int(self.offsets[position]) : int(self.offsets[position + 1])]

    def rows(self) -> list[Any]:
        """All rows as arrays, each a view of the data."""
        return [self.data[begin:end] for begin, end in pairwise(self.offsets.tolist())]

    def tolist(self) -> list[Any]:
        """All rows as values of Python: ``str``, ``bytes`` for bytes, or lists of numbers."""
        if self.logical in TEXTS:
            return self._texts()
        if self.logical in BYTES:
            return [content for _, content in self._contents()]
        return [row.tolist() for row in self.rows()]

    def json(self) -> list[Any]:
        """All rows of text parsed as JSON documents.

        Raises:
            ValueError: a row is no JSON document.
            TypeError: the rows are not text.
        """
        if self.logical not in TEXTS:
            raise TypeError(f"{self._named('')} has rows of {self.logical}, which are no JSON")
        parsed = []
        for row, text in enumerate(self._texts()):
            try:
                parsed.append(json.loads(text))
            except ValueError as error:
                raise ValueError(f"row {row} of {self._named()} is no JSON: {error}") from error
        return parsed

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The column on another device or of another type, by ``to`` of torch's tensors.

        Offsets keep their type, and so do values that are not plain numbers. A column in arrays
        without ``to`` stays as it is.
        """
        if not hasattr(self.data, "to"):
            return self
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        to_device = {"non_blocking": kwargs.get("non_blocking", False)}
        if self.logical != "number" and data.dtype != self.data.dtype:
            data = self.data.to(data.device, **to_device)
        return self._with(data, self.offsets.to(data.device, **to_device))

    def pin_memory(self) -> Self:
        """A copy in page-locked memory, for torch's tensors."""
        if not hasattr(self.data, "pin_memory"):
            return self
        return self._with(self.data.pin_memory(), self.offsets.pin_memory())

    def _with(self, data: Any, offsets: Any) -> Self:
        """The same column in other arrays."""
        return type(self)(data, offsets, self.logical, self.name)

    def _contents(self) -> Iterator[tuple[int, bytes]]:
        """The number and the bytes of each row."""
        content = memoryview(_on_host(self.data).tobytes())
        ends = pairwise(_on_host(self.offsets).tolist())
        return ((row, bytes(content[begin:end])) for row, (begin, end) in enumerate(ends))

    def _texts(self) -> list[str]:
        return [self._text(content, row) for row, content in self._contents()]

    def _text(self, content: bytes, row: SupportsIndex) -> str:
        return text_of(
            content, self.logical, f"row {row} of {self._named()}", ".row() has its bytes"
        )

    def _named(self, article: str = "the ") -> str:
        return f"column {self.name!r}" if self.name else f"{article or 'a '}larder.Ragged"

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), (self.data, self.offsets, self.logical, self.name)

    def __repr__(self) -> str:
        return f"<larder.Ragged of {described(self)}>"


#: A column of a batch in arrays of numpy.
Column = np.ndarray[Any, Any] | Ragged
Columns = dict[str, Column]


def text_of(content: bytes, logical: str, what: str, hint: str) -> str:
    """A row of text. ``what`` names it in the error for bytes that are not UTF-8."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{what} is not UTF-8: byte {error.start} is {content[error.start]:#04x}; {hint}"
        ) from None
    return JsonText(text) if logical == "json" else text


def logical_of(row: Any) -> str:
    """The logical type of a column with such rows."""
    if isinstance(row, str):
        return "json" if isinstance(row, JsonText) else "text"
    return "bytes" if isinstance(row, bytes) else "number"


def as_row(row: Any) -> np.ndarray[Any, Any]:
    """A row as an array: the bytes of a text."""
    if isinstance(row, str):
        row = row.encode()
    return np.frombuffer(row, np.uint8) if isinstance(row, bytes) else np.asarray(row)


def described(column: Ragged) -> str:
    """A column in words: text as text, bytes as a length, numbers as their type and shape."""
    try:
        count, of = len(column), column.logical
        shape = ", ".join(["any", *map(str, column.data.shape[1:])])
        rows = f"{count} row" if count == 1 else f"{count} rows"
        numbers = f"{rows} of {_dtype(column.data)} [{shape}]"
    except (AttributeError, TypeError):  # JAX rebuilds columns of any objects.
        return f"{type(column.data).__name__} objects"
    if of not in TEXTS | BYTES:
        return numbers
    if not _is_on_host(column.data):
        return f"{rows} of {of} on {column.data.device}"
    if of in BYTES:
        lengths = _on_host(column.lengths)
        least, most = (int(lengths.min()), int(lengths.max())) if count else (0, 0)
        size = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        return f"{rows} of {of}, {size} bytes"
    shown = [_shortened(_on_host(row).tobytes()) for row in column[:_SHOWN_ROWS].rows()]
    more = ["..."] if count > _SHOWN_ROWS else []
    return f"{rows} of {of}: " + ", ".join(shown + more)


def _shortened(content: bytes) -> str:
    # A letter has at most four bytes.
    text = content[: 4 * _SHOWN_LETTERS + 4].decode(errors="replace")
    return repr(text if len(text) <= _SHOWN_LETTERS else text[: _SHOWN_LETTERS - 3] + "...")


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def _is_on_host(array: Any) -> bool:
    """Whether its bytes can be read without a wait for a device."""
    return getattr(getattr(array, "device", "cpu"), "type", "cpu") == "cpu" and not hasattr(
        array, "__cuda_array_interface__"
    )


def _on_host(array: Any) -> np.ndarray[Any, Any]:
    """A numpy array of any framework's array. Copies one from a device to the host."""
    if hasattr(array, "cpu"):
        array = array.cpu()
    return np.asarray(array.numpy() if hasattr(array, "numpy") else array)


_frameworks.jax_nodes.append(
    (
        Ragged,
        lambda column: ((column.data, column.offsets), (column.logical, column.name)),
        lambda facts, arrays: Ragged(*arrays, *facts),
    )
)
