"""Random numbers that a transform gets: a pure function of seed, dataset, pass and sample.

They are blocks of one counter-based generator, Philox. The seed is its key. Dataset, pass and
sample are the upper words of its counter. The pass is the number of earlier passes over the
dataset. It is the epoch, but in a mixture each dataset counts its own passes.

So no two samples of a job share a number, and numbers can be drawn in any order. Worker, rank and
world size have no effect.

Thread rule: a :class:`Streams` is used by one thread.
"""

from __future__ import annotations

import numpy as np

#: The use of the numbers: the second word of the key.
SAMPLE, BATCH = 0, 1


class Streams:
    """The streams of one job: one generator that moves from stream to stream."""

    def __init__(self, seed: int, use: int) -> None:
        self._key = np.array([seed, use], dtype=np.uint64)
        self._bits = np.random.Philox(key=self._key)
        self._generator = np.random.Generator(self._bits)

    def at(self, source: int, number: int, sample: int) -> np.random.Generator:
        """The stream of a sample in pass `number`, from its start. The stream before it ends."""
        # The lowest word counts draws. It reaches the next sample after 2**64 blocks.
        counter = np.array([0, source, number, sample], dtype=np.uint64)
        self._bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": counter, "key": self._key},
            "buffer": _EMPTY,
            "buffer_pos": len(_EMPTY),
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator


_EMPTY = np.zeros(4, dtype=np.uint64)
