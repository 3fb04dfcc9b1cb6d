"""The exceptions: one class for each kind of failure, all of them `Error`."""

from __future__ import annotations

import re

_BY_KIND: dict[str, type[Error]] = {}


class Error(Exception):
    """A failure, its reason and its remedy.

    Attributes:
        kind: the kind of failure in one word, such as ``"not_found"``.
        what: the action that failed.
        why: the reason, or None if it is not known.
        hint: the remedy, or None if none is known.
    """

    kind = "internal"

    def __init_subclass__(cls, kind: str | None = None) -> None:
        if kind is not None:
            cls.kind, cls.__module__ = kind, "larder"
            _BY_KIND[kind] = cls

    def __init__(self, what: str, why: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        text = self.what if self.why is None else f"{self.what}: {self.why}"
        return text if self.hint is None else f"{text}\nhint: {self.hint}"


class InvalidArgument(Error, ValueError, kind="invalid_argument"):
    """The call makes no sense, or exceeds a limit."""


class NotFound(Error, LookupError, kind="not_found"):
    """There is no such dataset, tag, snapshot or tensor."""


class PermissionDenied(Error, PermissionError, kind="permission_denied"):
    """The origin or the node refuses access."""


class Unauthenticated(Error, kind="unauthenticated"):
    """A credential is missing, unknown or expired."""


class ResourceExhausted(Error, kind="resource_exhausted"):
    """A queue, a quota or memory is full."""


class Unavailable(Error, ConnectionError, kind="unavailable"):
    """No node answers, or the node of this host does not start."""


class OriginUnavailable(Error, ConnectionError, kind="origin_unavailable"):
    """The object store does not answer."""


class DataChanged(Error, kind="data_changed"):
    """The objects are no longer those that were indexed: index the dataset again."""


class DataLoss(Error, kind="data_loss"):
    """Bytes do not have their checksum and there is no sound copy, or a file is damaged."""


class VersionMismatch(Error, kind="version_mismatch"):
    """This package and a node speak no common version of the protocol."""


class InternalError(Error, kind="internal"):
    """A defect of Larder itself."""


class TransformError(Error, kind="transform"):
    """A transform raised; its exception is the ``__cause__``.

    Attributes:
        samples: the index of the failed sample, or the indices of all samples of the failed batch.
            They are indices into the dataset from :func:`larder.open`, also for parts and mixtures.
        epoch: the number of the epoch.
    """

    samples: list[int]
    epoch: int


Error.__module__ = "larder"


#: A command that indexes an address, with its flags.
_INDEX = re.compile(r"larder dataset index (\w+://[^\s;,)]+)((?: --[a-z-]+ [^\s;,)-][^\s;,)]*)*)")

#: Flags of the command line that a message names alone and that are no arguments of that name.
_FLAGS = {"--checksum": "checksum=True", "--memory": "memory"}

#: The flags that are arguments of Python, with a value that is one word or a placeholder in
#: capitals. Prose behind a flag is no value.
_ARGUMENTS = re.compile(
    r"--(bad|between|cluster|columns?|dtype|format(?! env)|include|key|manifest|missing|offset"
    r"|sample|shard-bytes|stride|tag|window)(?![\w-])"
    r"(?: (?P<value>[A-Z]{2,}|http://[^\s;,)]+|empty|error|file|rows|skip"
    r"|u?int(?:8|16|32|64)|[0-9]+)(?!\w))?"
)


def in_words_of_python(text: str) -> str:
    """A message of the native module, with calls and arguments in place of commands and flags."""

    def call(command: re.Match[str]) -> str:
        words = command[2].split()
        arguments = [f'"{command[1]}"']
        for flag, value in zip(words[::2], words[1::2], strict=True):
            name = flag[2:].replace("-", "_")
            arguments.append(f"{name}={value}" if value.isdigit() else f'{name}="{value}"')
        return f"larder.index({', '.join(arguments)})"

    def argument(flag: re.Match[str]) -> str:
        name, value = flag[1].replace("-", "_"), flag["value"]
        if value is None or value.isdigit():
            return f"{name}={value or ''}"
        return f'{name}="{value}"'

    text = _INDEX.sub(call, text)
    for alone, instead in _FLAGS.items():
        text = re.sub(rf"{alone}(?![\w-])", instead, text)
    return _ARGUMENTS.sub(argument, text)


def from_kind(kind: str, what: str, why: str | None, hint: str | None) -> Error:
    """The exception for an error of the native module."""
    why, hint = (text and in_words_of_python(text) for text in (why, hint))
    return _BY_KIND.get(kind, InternalError)(in_words_of_python(what), why, hint)
