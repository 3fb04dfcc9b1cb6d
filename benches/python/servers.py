"""Servers of rows to compare with: Arrow Flight, and plain sockets.

Each serves the rows of one `.npy` file from its own process on loopback. A client asks for rows by
their numbers, and waits for the answer.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
from pathlib import Path
from typing import Any, Self

import numpy as np

Rows = np.ndarray[Any, Any]

#: Seconds in which a server must have ended.
END_SECONDS = 60


class _Server:
    """A server in a process of its own."""

    def __init__(self, path: Path, serve: Any) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(path, theirs), daemon=True)
        self._process.start()
        self.port: int = self._pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join(END_SECONDS)


class Flight(_Server):
    """`do_get` with the row numbers in the ticket. The answer is one array of fixed-size binaries."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _serve_flight)
        from pyarrow import flight

        self._flight = flight
        self._client = flight.connect(f"grpc://127.0.0.1:{self.port}")

    def read(self, ids: Rows) -> Rows:
        """The rows of a request, as an array over Arrow's memory."""
        batches = self._client.do_get(self._flight.Ticket(ids.tobytes())).read_all()
        rows = batches.column(0).combine_chunks()
        return np.frombuffer(rows.buffers()[1], np.uint8)


def _serve_flight(path: Path, pipe: Any) -> None:
    import pyarrow
    from pyarrow import flight

    mapped = np.load(path, mmap_mode="r")
    kind = pyarrow.binary(mapped.shape[1])
    schema = pyarrow.schema([("x", kind)])

    class Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, _: Any, ticket: Any) -> Any:
            ids = np.frombuffer(ticket.ticket, np.int64)
            content = pyarrow.py_buffer(mapped[ids])
            rows = pyarrow.Array.from_buffers(kind, len(ids), [None, content])
            return flight.RecordBatchStream(pyarrow.table([rows], schema=schema))

    server = Server("grpc://127.0.0.1:0")
    pipe.send(server.port)
    server.serve()


class Plain(_Server):
    """A frame with the row numbers, answered by the bytes of the rows. No checksum."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _serve_plain)
        self._socket = socket.create_connection(("127.0.0.1", self.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self, ids: Rows, out: Rows) -> Rows:
        """Reads the rows of a request into `out`."""
        self._socket.sendall(struct.pack("<q", len(ids)) + ids.tobytes())
        rest = memoryview(out[: len(ids)].reshape(-1))
        while rest:
            rest = rest[self._socket.recv_into(rest) :]
        return out[: len(ids)]

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        super().__exit__()


def _serve_plain(path: Path, pipe: Any) -> None:
    mapped = np.load(path, mmap_mode="r")
    listener = socket.create_server(("127.0.0.1", 0))
    pipe.send(listener.getsockname()[1])
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection.makefile("rb") as asked:
        while head := asked.read(8):
            ids = np.frombuffer(asked.read(8 * struct.unpack("<q", head)[0]), np.int64)
            connection.sendall(mapped[ids])
