"""Batches in the memory of a GPU, copied ahead of their use.

python examples/gpu.py s3://bucket/images
"""

import sys

import larder

ds = larder.open(sys.argv[1])
loader = ds.loader(batch_size=32, seed=0, device="cuda:0")
for batch in loader:
    print("samples", batch.samples.tolist())
    # Tensors of torch if the program imports torch, else larder.DeviceTensor: DLPack hands these
    # to any framework without a copy.
    for name, tensor in batch.items():
        print(name, tensor.dtype, tensor.shape)

print(loader.stats()["device_bytes"], "bytes were copied to the GPU")
