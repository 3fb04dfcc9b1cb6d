"""One rank of a job. Each global batch is divided among the ranks, and each sample comes on one.

torchrun --nproc-per-node 2 examples/ddp.py s3://bucket/images

This example does without torch: docs/python/ddp-fsdp.md trains a model.
"""

import sys

import larder

# The rank and the number of ranks are those of torchrun: RANK and WORLD_SIZE.
loader = larder.open(sys.argv[1]).loader(batch_size=16, seed=0)
for epoch in range(2):
    for batch in loader:  # each rank gets the same number of batches
        print("epoch", epoch, "samples", batch.samples.tolist())
