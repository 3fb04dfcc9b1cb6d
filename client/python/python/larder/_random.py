"""Random numbers that a transform gets: a pure function of seed, dataset, pass and sample.

They are blocks of one Philox generator, which is counter-based: the seed is its key, and dataset,
pass and sample are the upper words of its counter. The pass says how often the dataset was gone
through before: it is the epoch, but in a mixture each dataset has passes of its own. So no two
samples that come in the life of a job share a number, none needs another's to be drawn first, and
worker, rank and world size take no part.

Thread rule: a :class:`Streams` is used by one thread.
"""

from __future__ import annotations

import numpy as np

#: The use of the numbers: the second word of the key.
SAMPLE, BATCH = 0, 1


class Streams:
    """The streams of one job; one generator that is moved from one to the next."""

    def __init__(self, seed: int, use: int) -> None:
        self._key = np.array([seed, use], dtype=np.uint64)
        self._bits = np.random.Philox(key=self._key)
        self._generator = np.random.Generator(self._bits)

    def at(self, source: int, number: int, sample: int) -> np.random.Generator:
        """The stream of a sample in pass `number`, from its beginning; the one before it ends."""
        # The lowest word counts draws: it reaches the next sample after 2**64 blocks.
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
