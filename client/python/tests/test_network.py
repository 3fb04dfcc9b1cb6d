"""Proxies and authorities: the doctor shows them, and an unknown issuer names the variables."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness import BINARIES


class _Nothing(BaseHTTPRequestHandler):
    """A store that has nothing."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """A store with TLS. Its certificate is its own issuer, in ``store.pem``."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    more = "-keyout store.key -out store.pem -subj /CN=store -addext subjectAltName=IP:127.0.0.1"
    plain = "-addext basicConstraints=critical,CA:FALSE"
    whole = f"{command} {more} {plain}".split()
    subprocess.run(whole, cwd=tmp_path, check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Nothing)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "store.pem", tmp_path / "store.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def doctor(endpoint: str, **variables: str) -> dict[str, str]:
    """What each check of the tool found."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_RUNTIME_DIR")}
    keys = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "a", "AWS_REGION": "eu-west-1"}
    command = [BINARIES / "larder", "doctor", "s3://data/images", "-o", "json"]
    environment = kept | keys | {"AWS_ENDPOINT_URL": endpoint} | variables
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return {check["name"]: check["found"] for check in json.loads(said.stdout)["checks"]}


def test_unknown_issuer_names_the_variables(store: str, tmp_path: Path) -> None:
    found = doctor(store, AWS_MAX_RETRIES="0")["origin list"]
    assert f"does not trust the issuer of the certificate of {store}" in found
    assert "SSL_CERT_FILE" in found
    assert "AWS_CA_BUNDLE" in found
    authority = str(tmp_path / "store.pem")
    for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE"):
        trusted = doctor(store, **{name: authority})
        assert "issuer" not in trusted["origin list"], name
        assert trusted["network"] == f"{name} is {authority}"


def test_doctor_shows_proxies_without_their_passwords(store: str) -> None:
    found = doctor(store, HTTPS_PROXY="http://me:hidden@127.0.0.1:1", NO_PROXY="127.0.0.1")
    assert found["network"] == "HTTPS_PROXY is http://127.0.0.1:1, NO_PROXY is 127.0.0.1"
