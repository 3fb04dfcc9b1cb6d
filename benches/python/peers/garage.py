"""garage, an independent S3 server, as a child process on loopback.

`LARDER_GARAGE` names the program; `make bench-peers` sets it. garage is only run, never linked or
shipped.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import usage

#: The bucket that exists from the start.
BUCKET = "data"

#: Variables that lead every S3 client to it. garage wants keys of this form.
_ACCESS = {
    "AWS_ACCESS_KEY_ID": "GK" + "a1" * 12,
    "AWS_SECRET_ACCESS_KEY": "b2" * 32,
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

#: Time limit for its start, in seconds.
START_SECONDS = 60

#: Uploads at a time.
UPLOADS = 4

#: Its defaults, but without compression: random bytes do not compress.
_CONFIGURATION = """\
metadata_dir = "{folder}/meta"
data_dir = "{folder}/data"
db_engine = "lmdb"
replication_factor = 1
compression_level = "none"
rpc_bind_addr = "127.0.0.1:{rpc}"
rpc_public_addr = "127.0.0.1:{rpc}"
rpc_secret = "{secret}"

[s3_api]
s3_region = "{region}"
api_bind_addr = "127.0.0.1:{s3}"

[admin]
api_bind_addr = "127.0.0.1:{admin}"
"""


class Garage:
    """A running server with one bucket. It ends with the `with` block.

    Attributes:
        environment: the environment variables of a process that uses it.
    """

    def __init__(self, folder: Path, wrapper: list[str] | None = None) -> None:
        """Starts it with its files under `folder`, run by `wrapper`, such as `taskset -c 1`."""
        folder = folder / "garage"
        folder.mkdir()
        s3, rpc, self._admin = _free_ports(3)
        self.environment = {**_ACCESS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}"}
        configuration = folder / "garage.toml"
        configuration.write_text(
            _CONFIGURATION.format(
                folder=folder,
                s3=s3,
                rpc=rpc,
                admin=self._admin,
                secret="c3" * 32,
                region=_ACCESS["AWS_REGION"],
            )
        )
        self._log = folder / "log"
        program = [os.environ["LARDER_GARAGE"], "-c", str(configuration)]
        defaults = {
            "GARAGE_DEFAULT_ACCESS_KEY": _ACCESS["AWS_ACCESS_KEY_ID"],
            "GARAGE_DEFAULT_SECRET_KEY": _ACCESS["AWS_SECRET_ACCESS_KEY"],
            "GARAGE_DEFAULT_BUCKET": BUCKET,
            "RUST_LOG": "garage=warn",
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*(wrapper or []), *program, "server", "--single-node", "--default-bucket"],
                env={**os.environ, **defaults},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self._wait_for_bucket()

    def counted(self) -> dict[str, float]:
        """Its counts of requests so far, and its CPU seconds."""
        said = self._ask("metrics")
        requests = re.findall(r"^api_s3_request_counter\{[^}]*\} (\d+)$", said, re.MULTILINE)
        return {
            "requests": float(sum(map(int, requests))),
            "cpu_seconds": usage.cpu_seconds([self._process.pid]),
        }

    def upload(self, folder: Path, prefix: str) -> None:
        """Uploads the files of a folder under a prefix."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        s3 = client()

        def put(path: Path) -> None:
            key = f"{prefix}/{path.relative_to(folder)}"
            s3.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())

        with ThreadPoolExecutor(UPLOADS) as uploads:
            for _ in uploads.map(put, files):
                pass

    def _wait_for_bucket(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                self._ask("health")
                client(self.environment).head_bucket(Bucket=BUCKET)
                return
            except Exception:
                time.sleep(0.1)
        said = self._log.read_text().splitlines()[-5:]
        self.__exit__()
        raise RuntimeError(f"garage did not start: {said}")

    def _ask(self, what: str) -> str:
        with urlopen(f"http://127.0.0.1:{self._admin}/{what}", timeout=START_SECONDS) as answer:
            return str(answer.read(), "utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def client(environment: dict[str, str] | None = None) -> Any:
    """A boto3 client for the server that the environment names."""
    import boto3
    from botocore.config import Config

    named = environment or dict(os.environ)
    return boto3.client(
        "s3",
        endpoint_url=named["AWS_ENDPOINT_URL"],
        aws_access_key_id=named["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=named["AWS_SECRET_ACCESS_KEY"],
        region_name=named["AWS_REGION"],
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )


def _free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
