"""A batch: arrays of a framework, and its place in the job's order.

Thread rule: as the arrays in it; picklable.
"""

from __future__ import annotations

import logging
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from larder import _distributed
from larder._output import Convert, convert_all
from larder._samples import Samples, register
from larder._transformed import Facts, Transformation

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from larder import _larder
    from larder._device import Place

_log = logging.getLogger("larder")


@register
class Batch(Samples):
    """A batch: a dict from each tensor's name to its array, with one row for each sample.

    Rows that differ in length are a :class:`larder.Ragged`, a sequence of rows; a row of text is a
    ``str``. :meth:`to_arrow` exports the batch. Frameworks that rebuild a batch from
    its items (``type(batch)(items)``) get one without the attributes. :meth:`to`, ``copy.copy`` and
    pickling keep them.

    Attributes:
        samples: for each row the index of its sample (int64), in the dataset from
            :func:`larder.open`. Parts (``split``, ``select``) and mixtures use these indices too.
        padding: the number of rows at the end that only fill the last batch. Leave them out of
            metrics.
        sources: in a mixture, for each row the index of its dataset (int64); else None.
    """

    #: A warning that the main process gives when it gets this batch from a worker.
    _warning: str | None = None

    samples: np.ndarray[Any, Any]
    padding: int
    sources: np.ndarray[Any, Any] | None
    _state: str

    @classmethod
    def of(
        cls,
        native: _larder.Batch,
        convert: Convert,
        left_out: Mapping[str, str] | None = None,
    ) -> Self:
        """A native batch as arrays of a framework."""
        return cls.with_facts(convert_all(native.tensors, convert, left_out), Facts.of(native))

    @classmethod
    def on_device(cls, native: _larder.Batch, place: Place) -> Self:
        """A native batch in the memory of a device."""
        return cls.with_facts(place.values(native), Facts.of(native))

    @classmethod
    def of_transformed(cls, batch: Transformation) -> Self:
        """A batch after its transform."""
        return cls.with_facts(Samples(batch.values), batch.facts)

    @classmethod
    def with_facts(cls, values: Samples, facts: Facts) -> Self:
        """A batch of these values."""
        batch = cls(values)
        batch.__dict__.update(vars(values))
        batch.samples, batch.sources, _, batch.padding, batch._state = facts
        return batch

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The batch on another device or of another type.

        Calls ``to`` of each torch tensor, also in dicts, lists and tuples. Other values stay.
        """
        batch = copy(self)
        batch.update({name: _moved(value, args, kwargs) for name, value in self.items()})
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The state of the job after this batch, for :meth:`Loader.load_state_dict`."""
        return {"larder": self._state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # torch also copies a batch in the worker.
        if self._warning is not None and _distributed.worker_info() is None:
            _log.warning(self.__dict__.pop("_warning"))

    def __repr__(self) -> str:
        """Its rows, its place in the epoch, and the type and shape of each array."""
        if "samples" not in vars(self):
            return f"<larder.Batch without its facts:{self._table()}>"
        # larder-state/1/VIEW/SEED/EPOCH/SHUFFLE/ORDER-VERSION/NEXT-POSITION
        stand = self._state.split("/")
        padding = f", {self.padding} of padding" if self.padding else ""
        return (
            f"<larder.Batch of {len(self.samples)} rows{padding}, before position {stand[-1]} "
            f"of epoch {stand[4]}:{self._table()}>"
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("samples", "padding", "sources", "_state"):
            raise AttributeError(
                f"this batch has lost its {name.lstrip('_')}: it was put together anew of another "
                "batch's items (by a framework, on its way to a device)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _moved(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A value after ``to`` of the tensors in it."""
    if callable(getattr(value, "to", None)):
        return value.to(*args, **kwargs)
    if isinstance(value, dict):
        moved = copy(value)
        moved.update({key: _moved(item, args, kwargs) for key, item in value.items()})
        return moved
    if isinstance(value, list | tuple):
        items = [_moved(item, args, kwargs) for item in value]
        if isinstance(value, list):
            return items
        named = hasattr(value, "_fields")
        return type(value)(*items) if named else tuple(items)
    return value
