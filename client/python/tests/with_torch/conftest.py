"""The tests that need torch; run in a virtual environment of their own by `make test-full`."""

from __future__ import annotations

import multiprocessing

# Workers of the forkserver then begin with torch in memory.
multiprocessing.set_forkserver_preload(["torch", "larder.torch"])
