"""A process that transforms batches, and the memory that it shares with its parent.

Rows go to the process and what it makes of them comes back in memory files without a name: a batch
is copied once on its way there, results are written where the parent sees them. Whoever is killed,
and how, the kernel frees them with their last user.

A forked child shares the batches that its parent has: what one of them writes there, the other
sees. The process puts no other batch into that memory.

The process is started anew (`spawn`), so it inherits no thread, lock or connection. It ends with
its parent, or when it is closed.

Thread rule: one thread at a time calls a :class:`Worker`; any may close it.
"""

from __future__ import annotations

import collections
import mmap
import multiprocessing
import os
import pickle
import signal
import traceback
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from larder._errors import InvalidArgument, TransformError
from larder._output import as_numpy, is_array
from larder._ragged import Leaf, Leaves, Ragged, flatten, unflatten
from larder._transform import Allocate, Rows, Shapes, Transform, failed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

#: Where each array begins: at a multiple of this. JAX takes nothing less as it is.
_ALIGNMENT = 64
#: Results of a process that are lent at a time, each of them two descriptors. Who keeps more
#: batches than that gets copies of them.
_LENT_MAX = 8
#: How long a process that was killed may take to be gone; it is waited for no longer.
_END_SECONDS = 10


class _Field(NamedTuple):
    """Where an array lies in an arena."""

    leaf: Leaf
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int


class _Arena:
    """A memory file, mapped: as long as it has to be, and never shorter again."""

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = os.memfd_create("larder-transform", os.MFD_CLOEXEC)
        self.descriptor = descriptor
        #: Whether the process has it, too.
        self.sent = False
        self.size = 0
        self._map: mmap.mmap | None = None

    def reserve(self, size: int) -> None:
        """Makes it at least so long. Nobody may look at it, if it is to grow."""
        if size > self.size:
            size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            if os.fstat(self.descriptor).st_size < size:
                os.ftruncate(self.descriptor, size)
            self._map = mmap.mmap(self.descriptor, size)
            self.size = size

    def bytes(self) -> np.ndarray[Any, Any]:
        """All of it; every array that is made of it keeps this one as its base."""
        assert self._map is not None
        return np.frombuffer(self._map, dtype=np.uint8)

    def __del__(self) -> None:
        os.close(self.descriptor)


def _place(shapes: Shapes, end: int = 0) -> tuple[list[_Field], int]:
    """A place for each array from ``end`` on, and how long an arena must be."""
    fields = []
    for leaf, (shape, dtype) in shapes.items():
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        fields.append(_Field(leaf, dtype, shape, offset))
        end = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return fields, max(end, 1)


def _shapes(leaves: Leaves) -> Shapes:
    return {leaf: (array.shape, array.dtype) for leaf, array in leaves.items()}


def _arrays(memory: np.ndarray[Any, Any], fields: list[_Field]) -> Leaves:
    arrays: Leaves = {}
    for leaf, dtype, shape, offset in fields:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        arrays[leaf] = memory[offset : offset + size].view(dtype).reshape(shape)
    return arrays


class _Task(NamedTuple):
    """What the process is told: where the rows lie, and which arena the results go to."""

    rows: Rows
    fields: list[_Field]
    size: int
    arena: int
    #: Whether the descriptors of the rows' arena and of that for the results follow.
    new: tuple[bool, bool]


class _Done(NamedTuple):
    """What it answers: where the arrays lie, and what is none; `order` names both."""

    fields: list[_Field]
    size: int
    others: dict[str, Any]
    order: list[str]


class _Failed(NamedTuple):
    """Or what went wrong."""

    error: TransformError
    cause: bytes | None
    trace: str


class _Returned(NamedTuple):
    """An arena that nobody looks at any more, in this process."""

    number: int
    #: Whether a forked child may look at it: then another one takes its place.
    shared: bool


#: Counts forks of this process, each of them twice: one that is under way is counted, too.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(before=_count_fork, after_in_parent=_count_fork)


def _take_back(free: collections.deque[_Returned], number: int, forks: int) -> None:
    """Takes back an arena that was lent after so many forks."""
    free.append(_Returned(number, shared=forks != _forks))


class Worker:
    """The parent's side: starts the process when it is first needed."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        #: Whether it is of no use any more.
        self.closed = False
        # In a forked child it is somebody else's.
        self._owner = os.getpid()
        self._rows = _Arena()
        #: Arenas for results; a batch that the user holds has one.
        self._arenas: list[_Arena] = []
        #: Those that nobody looks at here.
        self._free: collections.deque[_Returned] = collections.deque()

    @property
    def pid(self) -> int | None:
        """The process, once it runs."""
        return None if self._process is None else self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it can be asked, by this process."""
        return not self.closed and self._owner == os.getpid()

    def apply(self, rows: Rows) -> dict[str, Any]:
        """As :meth:`Transform.apply`, in the process. Its arrays are views of shared memory."""
        try:
            self._start()
            answer = self._ask(rows)
        except (EOFError, ConnectionError) as broken:
            self.closed = True
            raise self._died(rows) from broken
        if isinstance(answer, _Failed):
            raise answer.error from _cause(answer)
        return answer

    def close(self) -> None:
        """End the process at once, whatever it does."""
        self.closed = True
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.join(timeout=_END_SECONDS)

    def _start(self) -> None:
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve, args=(theirs, self._payload), name="larder-transform", daemon=True
        )
        process.start()
        theirs.close()
        self._connection, self._process = ours, process
        if self.closed:
            process.kill()

    def _ask(self, rows: Rows) -> dict[str, Any] | _Failed:
        connection, process = self._connection, self._process
        assert connection is not None
        assert process is not None
        leaves = flatten(rows.columns)
        fields, size = _place(_shapes(leaves))
        self._rows.reserve(size)
        for leaf, array in _arrays(self._rows.bytes(), fields).items():
            np.copyto(array, leaves[leaf])
        number = self._arena()
        arenas = (self._rows, self._arenas[number])
        new = (not arenas[0].sent, not arenas[1].sent)
        # Not send(): what that leaves behind where it fails may crash CPython 3.12's collector.
        task = _Task(rows._replace(columns={}), fields, size, number, new)
        connection.send_bytes(pickle.dumps(task))
        for arena in arenas:
            if not arena.sent:
                multiprocessing.reduction.send_handle(connection, arena.descriptor, process.pid)
                arena.sent = True
        answer = connection.recv()
        if isinstance(answer, _Failed):
            self._free.append(_Returned(number, shared=False))
            return answer
        return self._lend(number, answer)

    def _arena(self) -> int:
        """An arena that nobody looks at."""
        try:
            number, shared = self._free.popleft()
        except IndexError:
            self._arenas.append(_Arena())
            return len(self._arenas) - 1
        if shared:
            self._arenas[number] = _Arena()
        return number

    def _lend(self, number: int, done: _Done) -> dict[str, Any]:
        """What lies in an arena; it is free again once nobody looks at it."""
        arena = self._arenas[number]
        arena.reserve(done.size)
        memory = arena.bytes()
        arrays = _arrays(memory, done.fields)
        if number < _LENT_MAX:
            weakref.finalize(memory, _take_back, self._free, number, _forks).atexit = False
        else:
            arrays = {leaf: array.copy() for leaf, array in arrays.items()}
            self._free.append(_Returned(number, shared=False))
        values = {**unflatten(arrays), **done.others}
        return {name: values[name] for name in done.order}

    def _died(self, rows: Rows) -> TransformError:
        process = self._process
        assert process is not None
        process.join(timeout=_END_SECONDS)
        code = process.exitcode
        first = int(rows.samples[0])
        if code is not None and code < 0:
            why = f"it was ended by {signal.Signals(-code).name}"
            hint = "SIGKILL by nobody is most often the kernel's, for memory: see dmesg"
        else:
            why = f"it ended with exit code {code}"
            hint = (
                "it may have said why on standard error; a program that starts processes begins "
                "with `if __name__ == '__main__':`"
            )
        error = TransformError(
            f"the transform process {process.pid} died on the batch of {len(rows.samples)} samples "
            f"that begins with sample {first} in epoch {rows.epoch}",
            why,
            hint,
        )
        error.samples, error.epoch = rows.samples.tolist(), rows.epoch
        return error

    def __del__(self) -> None:
        self.close()


def _cause(answer: _Failed) -> BaseException:
    """What the transform raised, with its traceback as a note."""
    cause: BaseException | None = None
    if answer.cause is not None:
        try:
            cause = pickle.loads(answer.cause)
        except Exception:  # It can be packed, but not unpacked here: its text must do.
            cause = None
    if not isinstance(cause, BaseException):
        return RuntimeError(f"in the transform process:\n{answer.trace}")
    cause.add_note(f"in the transform process:\n{answer.trace}")
    return cause


def pack(transform: Transform) -> bytes:
    """A transform as it is sent to processes."""
    try:
        return pickle.dumps(transform)
    except Exception as error:
        raise InvalidArgument(
            "the transform can't be sent to another process",
            str(error),
            "define it at the top of a module, or say worker_kind='thread'",
        ) from error


def serve(connection: Connection, payload: bytes) -> None:
    """The process: transforms what it is sent until its parent is gone."""
    # Ctrl-C is for the parent, which then ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arenas: dict[int, _Arena] = {}
    rows: _Arena | None = None
    transform: Transform | None = None
    while True:
        try:
            task = connection.recv()
            if task.new[0]:
                rows = _Arena(multiprocessing.reduction.recv_handle(connection))
            if task.new[1]:
                handle = multiprocessing.reduction.recv_handle(connection)
                arenas[task.arena] = _Arena(handle)
        except (EOFError, ConnectionError):
            return
        assert rows is not None
        rows.reserve(task.size)
        answer: _Done | _Failed
        try:
            transform = transform or _unpack(payload, task.rows)
            answer = _work(transform, task, rows, arenas[task.arena])
        except TransformError as error:
            answer = _failure(error)
        try:
            _answer(connection, answer, task.rows)
        except ConnectionError:
            return


def _answer(connection: Connection, answer: _Done | _Failed, rows: Rows) -> None:
    try:
        connection.send(answer)
    except ConnectionError:
        raise
    except Exception as error:  # It is packed before any of it is sent.
        unsent = TransformError(
            "what the batch_transform returned can't be sent to another process",
            str(error),
            "return arrays, or say worker_kind='thread'",
        )
        unsent.samples, unsent.epoch = rows.samples.tolist(), rows.epoch
        connection.send(_failure(unsent))


def _unpack(payload: bytes, rows: Rows) -> Transform:
    try:
        transform: Transform = pickle.loads(payload)
    except Exception as error:
        unfit = TransformError(
            "the transform can't be loaded in another process",
            str(error),
            "define it in a module that can be imported, or say worker_kind='thread'",
        )
        unfit.samples, unfit.epoch = rows.samples.tolist(), rows.epoch
        raise unfit from error
    return transform


def _work(transform: Transform, task: _Task, rows: _Arena, out: _Arena) -> _Done:
    given = task.rows._replace(columns=unflatten(_arrays(rows.bytes(), task.fields)))
    allocate, fields = _allocator(out)
    try:
        results = transform.apply(given, allocate)
        others = {} if transform.whole is None else _share(results, allocate)
    except TransformError:
        raise
    except Exception as error:
        which = "transform" if transform.whole is None else "batch_transform"
        why = "what it returned can't be put into shared memory"
        hint = "return arrays that numpy can have, or say worker_kind='thread'"
        raise failed(which, given, None, why, hint) from error
    return _Done(fields, out.size, others, list(results))


def _share(results: dict[str, Any], allocate: Allocate) -> dict[str, Any]:
    """Puts the arrays among results where the parent sees them; returns what is none."""
    columns = {name: value for name, value in results.items() if _is_column(value)}
    leaves = {leaf: as_numpy(value) for leaf, value in flatten(columns).items()}
    for leaf, room in allocate(_shapes(leaves)).items():
        np.copyto(room, leaves[leaf])
    return {name: value for name, value in results.items() if name not in columns}


def _is_column(value: Any) -> bool:
    """Whether it is made of arrays."""
    return all(map(is_array, value)) if isinstance(value, Ragged) else is_array(value)


def _allocator(arena: _Arena) -> tuple[Allocate, list[_Field]]:
    """What makes room in an arena, and the list that it fills in."""
    placed: list[_Field] = []

    end = 0

    def allocate(shapes: Shapes) -> Leaves:
        nonlocal end
        fields, end = _place(shapes, end)
        # What was made room for before stays where it is, also if the arena is mapped anew.
        arena.reserve(end)
        placed.extend(fields)
        return _arrays(arena.bytes(), fields)

    return allocate, placed


def _failure(error: TransformError) -> _Failed:
    cause = error.__cause__
    trace = "".join(traceback.format_exception(cause if cause is not None else error))
    try:
        packed = None if cause is None else pickle.dumps(cause)
        if packed is not None:
            pickle.loads(packed)
    except Exception:  # Exceptions of libraries often can't be packed: the text says it.
        packed = None
    error.__cause__ = error.__context__ = None
    return _Failed(error, packed, trace)
