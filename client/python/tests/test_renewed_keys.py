"""A program sets new keys in its environment and reads on: its node takes them, and stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import botocore.session
import numpy as np
from botocore.config import Config
from botocore.exceptions import ClientError
from safetensors.numpy import save_file

from harness import BINARIES, Program

#: Reads epochs. Sets the keys of each line of its input before, and says when it has read.
READER = """
import os, sys, time
import larder

dataset = larder.open("s3://data/large")
loader = dataset.loader(batch_size=8, shuffle=False)
for line in sys.stdin:
    os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = line.split()
    # The library looks at its variables every two seconds.
    time.sleep(2.5)
    for _ in range(2):
        seen = [int(row[0]) for batch in loader for row in batch["x"]]
        assert seen == list(range(64)), seen
    assert list(dataset.take([3, 60])["x"][:, 0]) == [3, 60]
    print("read", flush=True)
"""


def test_new_keys_in_the_environment_keep_the_node(tmp_path: Path) -> None:
    (tmp_path / "data/large").mkdir(parents=True)
    rows = np.arange(64, dtype=np.int64)[:, None] * np.ones((1, 1 << 15), dtype=np.int64)
    save_file({"x": rows}, tmp_path / "data/large/rows.safetensors")
    keys = tmp_path / "keys"
    keys.write_text("A a-secret\n")
    server = Program("larder-demo-origin", "--dir", str(tmp_path), "--keys", str(keys))
    try:
        read_with_changing_keys(tmp_path, server, keys)
    finally:
        server.stop()


def read_with_changing_keys(folder: Path, server: Program, keys: Path) -> None:
    """Change the keys that the server accepts, and those of the reader after it."""
    endpoint, region = server.said["endpoint"], server.said["region"]

    def accept(*pairs: str) -> None:
        (folder / "draft").write_text("".join(f"{pair}\n" for pair in pairs))
        (folder / "draft").rename(keys)
        wait_until_accepted(endpoint, region, pairs[-1])

    (folder / "run").mkdir(mode=0o700)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "LARDER_"))
    } | {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": region,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "A",
        "AWS_SECRET_ACCESS_KEY": "a-secret",
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "LARDER_NODE_BIN": str(BINARIES / "larder-node"),
        # Less than the data, so that each epoch reads the store.
        "LARDER_MEMORY": "8MiB",
        "LARDER_HOST_NODE_LINGER": "1s",
    }
    wait_until_accepted(endpoint, region, "A a-secret")
    reader = subprocess.Popen(
        [sys.executable, "-c", READER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    with reader:
        nodes = []
        for pair in ("A a-secret", "B b-secret", "C c-secret"):
            accept(pair)
            print(pair, file=reader.stdin, flush=True)
            assert reader.stdout.readline() == "read\n", pair
            nodes.append(sorted(nodes_in(folder / "run")))
        reader.stdin.close()
    assert reader.returncode == 0
    assert len(nodes[0]) == 1
    assert nodes == [nodes[0]] * 3, "one node served it all the time"


def wait_until_accepted(endpoint: str, region: str, pair: str) -> None:
    """Ask the server until it accepts these keys, and with that no older ones."""
    identity, secret = pair.split()
    client = botocore.session.Session().create_client(
        "s3",
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=identity,
        aws_secret_access_key=secret,
        config=Config(s3={"addressing_style": "path"}),
    )
    for _ in range(600):
        try:
            client.list_objects_v2(Bucket="data", MaxKeys=1)
        except ClientError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"the server does not accept {pair}")


def nodes_in(run: Path) -> list[int]:
    """Return the nodes that run in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if line[0].endswith(b"larder-node") and any(bytes(run) in word for word in line):
            found.append(int(process.name))
    return found
