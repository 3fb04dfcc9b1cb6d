"""Loaders of others over a real S3 server, each with a file of its own: what writes its data, and
what loads it, as its documentation says it is done best.

Each peer is a `Peer`: `write` makes its files from mapped columns, `settings` says in which ways it
is tried. Here are the things that they share; `run_peers.py` is the runner.
"""

from peers.garage import Garage
from peers.hf_datasets import HuggingFace, HuggingFaceArrow
from peers.lit_data import LitData
from peers.mosaicml import Mosaic
from peers.peer import Peer
from peers.s3_connector import S3Connector
from peers.web_dataset import WebDataset

#: All of them, in the order of the tables.
PEERS: tuple[type[Peer], ...] = (
    Mosaic,
    WebDataset,
    LitData,
    HuggingFace,
    HuggingFaceArrow,
    S3Connector,
)

__all__ = ["PEERS", "Garage", "Peer"]
