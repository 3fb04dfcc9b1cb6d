"""Stores that lack a part of S3."""

from __future__ import annotations

import os
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from harness import S3Server


class _WithoutConditions(BaseHTTPRequestHandler):
    """Passes requests on, and answers 400 to a write with a condition."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.command == "PUT" and {"if-match", "if-none-match"} & {
            *map(str.lower, self.headers)
        }:
            self.send_error(400)
            return
        store = HTTPConnection(urlsplit(self.server.store).netloc)  # type: ignore[attr-defined]
        store.request(self.command, self.path, body, dict(self.headers.items()))
        answer = store.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.read())
        store.close()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_plain_writes_follow_conditional_ones_refused_with_400(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(s3.folder) / "data" / "plain-writes"
    folder.mkdir()
    save_file({"label": np.arange(5)}, folder / "a.safetensors")
    with ThreadingHTTPServer(("127.0.0.1", 0), _WithoutConditions) as server:
        server.store = os.environ["AWS_ENDPOINT_URL"]  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        first = larder.index("s3://data/plain-writes")
        save_file({"label": np.arange(3)}, folder / "b.safetensors")
        second = larder.index("s3://data/plain-writes")
        server.shutdown()
    assert (first.samples, second.samples) == (5, 8)
    monkeypatch.undo()
    assert larder.open("s3://data/plain-writes").snapshot == second.snapshot
