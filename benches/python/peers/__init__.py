"""Other loaders over a real S3 server. Each has one file, which writes its data and loads it in the
best way of its documentation.

Each peer is a `Peer`: `write` makes its files from mapped columns, `settings` lists the settings to
try. `run_peers.py` is the runner.
"""

from peers.garage import Garage
from peers.hf_datasets import HuggingFace, HuggingFaceArrow
from peers.lit_data import LitData
from peers.mosaicml import Mosaic
from peers.peer import Peer
from peers.s3_connector import S3Connector
from peers.web_dataset import WebDataset

#: All peers, in the order of the tables.
PEERS: tuple[type[Peer], ...] = (
    Mosaic,
    WebDataset,
    LitData,
    HuggingFace,
    HuggingFaceArrow,
    S3Connector,
)

__all__ = ["PEERS", "Garage", "Peer"]
