"""Larder keeps training data warm between object storage and GPUs.

>>> import larder
>>> ds = larder.open("s3://bucket/imagenet")
>>> for batch in ds.loader(batch_size=256):
...     train(batch["image"], batch["label"])
"""

from larder._dataset import Dataset, TensorSpec, open
from larder._errors import (
    DataChanged,
    DataLoss,
    Error,
    InternalError,
    InvalidArgument,
    NotFound,
    OriginUnavailable,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
)
from larder._larder import Array, __version__
from larder._loader import Batch, Loader

__all__ = [
    "Array",
    "Batch",
    "DataChanged",
    "DataLoss",
    "Dataset",
    "Error",
    "InternalError",
    "InvalidArgument",
    "Loader",
    "NotFound",
    "OriginUnavailable",
    "PermissionDenied",
    "ResourceExhausted",
    "TensorSpec",
    "Unauthenticated",
    "Unavailable",
    "VersionMismatch",
    "__version__",
    "open",
]

for _public in (Batch, Dataset, Loader, TensorSpec, open):
    _public.__module__ = "larder"
