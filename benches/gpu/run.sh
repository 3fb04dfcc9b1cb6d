#!/bin/sh
# Figures of batches on their way to a GPU: see the section "GPU" in ../README.md.
#
# Builds nothing and uses no network. Needs a Python with torch and numpy, and two products of a
# build elsewhere: the package on PYTHONPATH (target/bench/package of `make bench-package`), and the
# node in LARDER_NODE_BIN.
exec "${PYTHON:-python3}" "$(dirname "$0")/run.py" "$@"
