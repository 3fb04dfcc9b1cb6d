"""Reads the rows of samples that a program names by their keys.

python examples/take_by_key.py s3://bucket/images label 55 7
"""

import sys

import larder

uri, column, *words = sys.argv[1:]
larder.index(uri, key=column)  # once: reads this column, and makes a table of its values
ds = larder.open(uri)

keys = [int(word) for word in words]  # keys of text are str
print("samples", ds.positions(keys).tolist())
rows = ds.take(keys=keys)  # the rows in the order of the keys
for name in ds.tensors:
    print(name, rows[name].dtype, rows[name].shape)
