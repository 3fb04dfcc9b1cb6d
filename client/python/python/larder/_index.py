"""Indexing: makes a dataset of the files under a prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from larder import _arguments, _larder
from larder._dataset import TensorSpec, specs
from larder._errors import in_words_of_python
from larder._progress import OnProgress, reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


@dataclass(frozen=True)
class IndexReport:
    """The result of indexing.

    Attributes:
        snapshot: the name of the snapshot.
        samples: the number of its samples.
        shards: the number of its shards.
        bytes: the bytes of all its tensors.
        tensors: the tensors of each sample.
        left_out: a tuple for each part that is not indexed: object, tensor (None for the whole
            object), and reason.
        reasons: how many of them have which reason, the most frequent first.
        warnings: oddities that make the dataset another one than you may mean, such as files that
            their numbers say are missing.
    """

    snapshot: str
    samples: int
    shards: int
    bytes: int
    tensors: dict[str, TensorSpec]
    left_out: list[tuple[str, str | None, str]]
    reasons: dict[str, int]
    warnings: list[str]


def index(
    uri: str | Sequence[str],
    *,
    tag: str | None = None,
    dtype: str | type | np.dtype[Any] | None = None,
    window: int | None = None,
    stride: int | None = None,
    offset: int | None = None,
    column: str | None = None,
    between: int | None = None,
    shard_bytes: int | None = None,
    checksum: bool = False,
    manifest: str | None = None,
    write: Literal["auto", "never"] | None = None,
    key: str | None = None,
    include: str | Sequence[str] | None = None,
    format: str | None = None,
    sample: Literal["rows", "file"] = "rows",
    columns: Sequence[str] | None = None,
    missing: str | None = None,
    bad: str | None = None,
    progress: OnProgress | None = None,
) -> IndexReport:
    """Index the files under a prefix in place, and write a small manifest beside them.

    Indexing understands ``.safetensors`` and ``.npy``, WebDataset tars, folders of pictures, sound
    and video, MDS shards, Parquet, Arrow files, JSON lines, and with ``dtype`` and ``window`` flat
    files of tokens. It reads headers and offsets, and all bytes of JSON lines and of tars with
    members below 256 KiB. With ``checksum`` it reads all data.

    Args:
        uri: the prefix: ``s3://bucket/prefix``, ``gs://``, ``az://`` or ``file:///folder``, without
            a tag. Or files: one object, a list of addresses under one prefix, or names in braces as
            ``s3://bucket/data/{000..146}.tar``.
        tag: the tag that will point to the snapshot; by default ``latest``. Files have a tag of
            their names, by which :func:`larder.open` finds them.
        column: a ragged column of integers, such as the tokens of documents. Each sample is then a
            window over its rows, read one after the other and never across the end of a file. The
            column ``__segments__`` has the places in each window where documents begin. Reads that
            column.
        between: an integer to put after each document.
        dtype: the type of a token in flat files, such as ``"uint16"`` or ``numpy.uint16``.
        window: tokens in a sample, of flat files or of ``column``.
        stride: tokens from the start of one sample to the start of the next; by default ``window``.
        offset: bytes before the first token of a ``.bin`` file; by default those of a header of
            llm.c, if the file begins with one.
        shard_bytes: the wanted size of a shard in bytes; by default 64 MiB.
        checksum: whether to read all data once and pin a checksum of each shard.
        manifest: the place of manifest and tag in place of the prefix.
        write: ``"never"`` writes nothing under the prefix: manifest and tag go to the user's cache
            folder. ``"auto"`` does so only if the prefix can't be written. The default is
            ``LARDER_WRITE``, else ``"auto"``.
        key: the column by whose values :meth:`Dataset.positions` and :meth:`Dataset.take` find
            samples: unique integers, or texts of at most 1,024 bytes. Reads that column.
        include: takes only files whose key under the prefix matches this pattern or one of these,
            such as ``"train/*.tar"``, ``"**/*.jpg"`` or ``"{000..146}.tar"``. Files that are left
            out because of a mark in their path (``.``, ``_``, ``cache-``) come back if the pattern
            spells the mark.
        format: ``"tensors"``, ``"wds"``, ``"folder"``, ``"mds"``, ``"parquet"``, ``"arrow"`` or
            ``"jsonl"``; by default the format that has the most bytes under the prefix.
        sample: with ``"file"``, each ``.npy`` file is a sample, as are files of a folder of
            pictures. Otherwise its first dimension counts samples.
        columns: the columns that the dataset has, of formats other than tensors; by default all.
        missing: what happens to a sample that lacks a column: ``"error"`` (default), ``"empty"``
            or ``"skip"``.
        bad: what happens to a damaged file: ``"error"`` (default), or ``"skip"``, which leaves it
            out and lists it in the report.
        progress: a function that is called with a :class:`larder.Progress`. Its exception or Ctrl-C
            ends the indexing. Nothing is published unless publishing has begun. By default a line
            on standard error or in the log shows the progress after two seconds.
    """
    optional = _arguments.optional
    on_progress = optional(_arguments.function, "progress", progress)
    report = _larder.index(
        {
            "uris": _arguments.addresses("uri", uri),
            "tag": optional(_arguments.text, "tag", tag, "a name"),
            "dtype": optional(_arguments.dtype, "dtype", dtype),
            "window": optional(_arguments.integer, "window", window, 1),
            "stride": optional(_arguments.integer, "stride", stride, 1),
            "offset": optional(_arguments.integer, "offset", offset),
            "column": optional(_arguments.text, "column", column, "the name of a column"),
            "between": optional(_arguments.integer, "between", between, -(2**63), 2**63 - 1),
            "shard_bytes": optional(_arguments.integer, "shard_bytes", shard_bytes, 1),
            "checksum": _arguments.flag("checksum", checksum),
            "manifest": optional(_arguments.address, "manifest", manifest),
            "write": _arguments.write(write),
            "key": optional(_arguments.text, "key", key, "the name of a column"),
            "include": _arguments.patterns("include", include),
            "format": optional(_arguments.text, "format", format, "the name of a format"),
            "file_samples": _arguments.choice("sample", sample, ("rows", "file")) == "file",
            "columns": _arguments.names("columns", columns),
            "missing": optional(_arguments.text, "missing", missing, "error, empty or skip"),
            "bad": optional(_arguments.text, "bad", bad, "error or skip"),
        },
        reporter(on_progress),
    )
    said = in_words_of_python
    words = {
        "left_out": [(object, tensor, said(why)) for object, tensor, why in report["left_out"]],
        "reasons": {said(why): count for why, count in report["reasons"]},
        "warnings": list(map(said, report["warnings"])),
    }
    return IndexReport(**{**report, **words, "tensors": specs(report["tensors"])})
