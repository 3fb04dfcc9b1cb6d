"""Opens a dataset and prints the arrays of its first batch.

python examples/first_batch.py s3://bucket/images
"""

import sys

import larder

ds = larder.open(sys.argv[1])  # starts a cache on this host, unless LARDER_CLUSTER names nodes
print(f"{len(ds)} samples")

for batch in ds.loader(batch_size=32, seed=0):
    print("samples", batch.samples.tolist())
    print(batch)  # a dict from the name of each tensor to its array
    break
