"""Stops after two batches, and saves its position in a file. Run it again: it continues there.

python examples/resume.py s3://bucket/images position.json
"""

import json
import sys
from itertools import islice
from pathlib import Path

import larder

uri, file = sys.argv[1], Path(sys.argv[2])
loader = larder.open(uri).loader(batch_size=32, seed=0)
if file.exists():
    loader.load_state_dict(json.loads(file.read_text()))

for batch in islice(loader, 2):
    print("samples", batch.samples.tolist())  # here a job trains

# Save it beside the model. It fits any batch size and any number of ranks.
file.write_text(json.dumps(loader.state_dict()))
