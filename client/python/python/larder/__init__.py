"""Larder keeps training data warm between object storage and GPUs.

>>> import larder
>>> ds = larder.open("s3://bucket/imagenet")
>>> for batch in ds.loader(batch_size=256):
...     train(batch["image"], batch["label"])
"""

import atexit as _atexit

from larder import _larder as _native
from larder._batch import Batch
from larder._dataset import Dataset, Schema, TensorSpec, open
from larder._decode import Audio, Image
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
    TransformError,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
)
from larder._explain import Explanation
from larder._host import Node, serve
from larder._index import IndexReport, index
from larder._larder import (
    Array,
    ArrowBatch,
    DeviceTensor,
    Locality,
    __version__,
    devices,
    stats,
)
from larder._loader import Loader
from larder._metrics import metrics
from larder._mixture import Mixture, mix
from larder._options import LoaderOptions
from larder._progress import Progress
from larder._ragged import JsonText, Ragged
from larder._samples import Samples

__all__ = [
    "Array",
    "ArrowBatch",
    "Audio",
    "Batch",
    "DataChanged",
    "DataLoss",
    "Dataset",
    "DeviceTensor",
    "Error",
    "Explanation",
    "Image",
    "IndexReport",
    "InternalError",
    "InvalidArgument",
    "JsonText",
    "Loader",
    "LoaderOptions",
    "Locality",
    "Mixture",
    "Node",
    "NotFound",
    "OriginUnavailable",
    "PermissionDenied",
    "Progress",
    "Ragged",
    "ResourceExhausted",
    "Samples",
    "Schema",
    "TensorSpec",
    "TransformError",
    "Unauthenticated",
    "Unavailable",
    "VersionMismatch",
    "__version__",
    "devices",
    "index",
    "metrics",
    "mix",
    "open",
    "serve",
    "stats",
]

_atexit.register(_native.hand_over)

for _public in (
    Audio,
    Batch,
    Dataset,
    Explanation,
    Image,
    IndexReport,
    JsonText,
    Loader,
    LoaderOptions,
    Mixture,
    Node,
    Progress,
    Ragged,
    Samples,
    Schema,
    TensorSpec,
    index,
    metrics,
    mix,
    open,
    serve,
):
    _public.__module__ = "larder"
