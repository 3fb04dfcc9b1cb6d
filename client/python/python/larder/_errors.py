"""The exceptions: one class for each kind of failure, all of them `Error`."""

from __future__ import annotations


class Error(Exception):
    """A failure, its reason and its remedy.

    Attributes:
        kind: the kind of failure in one word, such as ``"not_found"``.
        what: the action that failed.
        why: the reason, or None if it is not known.
        hint: the remedy, or None if none is known.
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
    """The call makes no sense, or exceeds a limit."""

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
    """No node answers, or the node of this host does not start."""

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
        samples: the index of the failed sample, or the indices of all samples of the failed batch.
            They are indices into the dataset from :func:`larder.open`, also for parts and mixtures.
        epoch: the number of the epoch.
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
