"""The exceptions: one class for each kind of failure, all of them `Error`."""

from __future__ import annotations


class Error(Exception):
    """What went wrong, why, and what to do about it.

    Attributes:
        kind: what kind of failure it is, in one word, such as ``"not_found"``.
        what: what could not be done.
        why: the reason, where it is known.
        hint: what you can do about it, where that is known.
    """

    kind: str = "internal"

    def __init__(self, what: str, why: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        text = self.what if self.why is None else f"{self.what}: {self.why}"
        return text if self.hint is None else f"{text}\nhint: {self.hint}"


class InvalidArgument(Error, ValueError):
    """The call makes no sense as it is, or exceeds a limit."""

    kind = "invalid_argument"


class NotFound(Error, LookupError):
    """There is no such dataset, tag, snapshot or tensor."""

    kind = "not_found"


class PermissionDenied(Error, PermissionError):
    """The origin or the node refuses access."""

    kind = "permission_denied"

    __str__ = Error.__str__


class Unauthenticated(Error):
    """A credential is missing, unknown or expired."""

    kind = "unauthenticated"


class ResourceExhausted(Error):
    """A queue, a quota or memory is full."""

    kind = "resource_exhausted"


class Unavailable(Error, ConnectionError):
    """No node answers."""

    kind = "unavailable"

    __str__ = Error.__str__


class OriginUnavailable(Error, ConnectionError):
    """The object store does not answer."""

    kind = "origin_unavailable"

    __str__ = Error.__str__


class DataChanged(Error):
    """The objects are no longer those that were indexed: index the dataset again."""

    kind = "data_changed"


class DataLoss(Error):
    """Bytes do not have their checksum, and there is no sound copy."""

    kind = "data_loss"


class VersionMismatch(Error):
    """This package and a node speak no common version of the protocol."""

    kind = "version_mismatch"


class InternalError(Error):
    """A defect of Larder itself."""

    kind = "internal"


class TransformError(Error):
    """A transform raised; its exception is the ``__cause__``.

    Attributes:
        samples: the number of the sample that it was applied to, or of all samples of the batch,
            in what :func:`larder.open` returned, also for a part of it or a mixture.
        epoch: the epoch it was in.
    """

    kind = "transform"
    samples: list[int]
    epoch: int


_BY_KIND: dict[str, type[Error]] = {
    error.kind: error
    for error in (
        InvalidArgument,
        NotFound,
        PermissionDenied,
        Unauthenticated,
        ResourceExhausted,
        Unavailable,
        OriginUnavailable,
        DataChanged,
        DataLoss,
        VersionMismatch,
        InternalError,
    )
}

for _error in (Error, TransformError, *_BY_KIND.values()):
    _error.__module__ = "larder"


def from_kind(kind: str, what: str, why: str | None, hint: str | None) -> Error:
    """The exception for an error of the native module."""
    return _BY_KIND.get(kind, InternalError)(what, why, hint)
