#!/bin/sh
# Figures of batches on their way to a GPU: see the section "GPU" in ../README.md.
#
# Builds nothing and asks no network. Needs a Python with torch and numpy, and what was built elsewhere: the package
# on PYTHONPATH (target/bench/package of `make bench-package`), the node in LARDER_NODE_BIN.
exec "${PYTHON:-python3}" "$(dirname "$0")/run.py" "$@"
