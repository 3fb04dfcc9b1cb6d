"""The options of loaders: the type, the default, the check and the text of each.

:class:`OrderOptions` are those of everything that has Larder's order. :class:`BatchOptions` adds
those of everything that fetches batches. The native loader gets both. :class:`LoaderOptions` adds
those that Python alone knows.

An option is one key of a class, and a paragraph of its text. Functions take the options of a class
as ``**options``. :func:`documented` writes them into the signature and the text of a function.

Thread rule: pure functions. Non-goals: checks that need two options, or the data.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial
from inspect import Parameter, cleandoc, signature
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar, get_args, get_type_hints

from larder import _arguments, _decode
from larder._decode import Audio, Bad, Image
from larder._device import DeviceWay
from larder._errors import InvalidArgument
from larder._larder import Locality
from larder._output import Output
from larder._pinned import PinMemory
from larder._progress import OnProgress

#: The range of the shuffle; also ``"window:SHARDS"``.
Shuffle = Literal["auto", "none", "window", "global"] | str
#: The treatment of a last batch that is not full.
Last = Literal["drop", "pad", "uneven"]

_F = TypeVar("_F", bound=Callable[..., Any])

_SHUFFLES = re.compile(r"auto|none|global|window(:[0-9]+)?")


class Option(NamedTuple):
    """The default of an option, and its check. A default of None is not checked."""

    default: Any
    #: Takes name and value. Returns the value in use, or raises `InvalidArgument`.
    check: Callable[[str, Any], Any] = lambda _, value: value


def _shuffle(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "auto" if value else "none"
    wanted = "True, False, 'auto', 'none', 'window', 'window:SHARDS' or 'global'"
    if not (isinstance(value, str) and _SHUFFLES.fullmatch(value)):
        raise _arguments.wrong(name, value, wanted)
    return value


class OrderOptions(TypedDict, total=False):
    """Options that decide the samples of each batch.

    Args:
        shuffle: ``"global"`` shuffles all samples, ``"window:64"`` (or ``"window"``) those of
            64 shards at a time, ``"none"`` nothing. ``"auto"`` takes ``"global"`` if the
            dataset and a quarter more fit the memory of the nodes. Otherwise it takes a window
            of 64 shards, or of as many as fill an eighth of that memory. Without nodes, and for
            ranks on several hosts with a node of their own each, it takes ``"window:64"``. For
            several ranks of a named cluster all its nodes must answer. :attr:`Loader.shuffle`
            is the result. True is ``"auto"``, False ``"none"``.
        seed: names the order, together with the epoch. The same on all ranks.
        rank: the number of this rank, from 0. Each sample comes on one rank. The default is
            the rank by torch.distributed, jax.distributed or the launcher, else 0 of 1.
        world_size: the number of ranks, with the same default.
        group: instead of both, a torch ``DeviceMesh`` or ``ProcessGroup`` of data parallelism.
            Ranks that are replicas in its other dimensions get the same batches.
        last: the treatment of a last batch that is not full: ``"drop"`` it, ``"pad"`` it, or
            deliver it ``"uneven"`` (under DDP ranks then wait for each other for ever). The
            default is ``"drop"``, with a warning if nothing is shuffled.
        locality: whether ranks divide each global batch by the hosts that hold its rows. Each
            rank then reads most rows from its own host. The samples of a global batch stay the
            same, and so do saved states. Under torch.distributed this is a collective call: all
            ranks make the loader, with the same setting. Elsewhere pass the result of
            :meth:`locality`, the same on all ranks.
    """

    shuffle: Annotated[Shuffle | bool, Option("auto", _shuffle)]
    seed: Annotated[int, Option(0, _arguments.integer)]
    rank: Annotated[int | None, Option(None)]
    world_size: Annotated[int | None, Option(None)]
    group: Annotated[Any, Option(None)]
    last: Annotated[Last | None, Option(None, partial(_arguments.choice, choices=get_args(Last)))]
    locality: Annotated[Locality | bool, Option(default=False)]


class BatchOptions(OrderOptions, total=False):
    """Options that decide the rows of a batch, and how they are fetched.

    Args:
        tensors: names of the wanted tensors; by default all.
        decode: what encoded rows become, by the name of their tensor: :class:`larder.Image`
            or :class:`larder.Audio`. The loader decodes them on its own threads, without the
            interpreter, straight into the batch. Their array has one shape.
        bad: the treatment of a sample that can't be decoded, or for which ``transform`` raises
            or returns None: an ``"error"`` that names it, or ``"skip"``: the next good sample
            of the batch stands for it. :meth:`Loader.stats` counts those as ``skipped``.
        prefetch: batches fetched ahead, 1 to 64, each on a thread. The default is 2. With
            ``decode`` it is the number of cores, 16 at most.
        job: a name for people, at most 64 bytes: ``larder node show`` lists what the job reads.
        progress: a function that is called with a :class:`larder.Progress` while a batch makes the
            program wait. By default a line on standard error or in the log shows it.
    """

    tensors: Annotated[Sequence[str] | None, Option(None, _arguments.names)]
    decode: Annotated[Mapping[str, Image | Audio] | None, Option(None, _decode.checked)]
    bad: Annotated[Bad, Option("error", partial(_arguments.choice, choices=get_args(Bad)))]
    prefetch: Annotated[
        int | None,
        Option(None, partial(_arguments.integer, least=1, most=_arguments.PREFETCH_MAX)),
    ]
    job: Annotated[str, Option("", partial(_arguments.text, wanted="a name"))]
    progress: Annotated[OnProgress | None, Option(None, _arguments.function)]


class LoaderOptions(BatchOptions, total=False):
    """Options of :meth:`larder.Dataset.loader`.

    Args:
        transform: a function of one sample, a dict of arrays (torch's for torch's output, else
            numpy's). Text is a ``str`` in it. It gets decoded tensors, and returns a dict of
            arrays and texts, which are stacked into batches. If it has a
            parameter ``rng``, it gets a ``numpy.random.Generator`` for this call. Its numbers
            depend on seed, epoch and sample only. In a mixture they depend on the number of
            earlier passes over that dataset instead of the epoch.
        batch_transform: a function of a whole batch, called after ``transform``. It returns a
            dict of any values. Its arrays become arrays of the output; other values stay. Its
            random numbers depend on the batch's first sample.
        workers: threads that transform batches ahead of the one in use, 256 at most. With 0,
            the loader transforms a batch when the consumer asks for it. Python that holds the
            interpreter lock runs in parallel only in worker processes: see
            :class:`larder.torch.IterableDataset`.
        output: the framework: ``"numpy"``, ``"torch"`` or ``"jax"``. ``"auto"`` is torch if the
            program has imported it, else numpy. With a ``device`` there is also ``"device"``,
            :class:`larder.DeviceTensor`; without torch, ``"auto"`` takes it.
        pin_memory: whether torch's tensors are in page-locked memory. A copy from it,
            ``batch.to("cuda", non_blocking=True)``, returns at once and is faster. ``"auto"``:
            if the program uses a GPU by torch when an epoch begins. Rows are gathered into this
            memory, even rows that would otherwise be views of the cache. Results of transforms
            are copied into it.
        device: the GPU for the batches: ``"cuda"``, ``"cuda:1"`` or a torch device. Batches are
            copied there ahead of the one in use, and the loop waits for no copy. Transforms
            stay on the host: torch copies their results.
        device_way: how bytes get there. ``"staged"``: gathered into a page-locked buffer and
            copied from it. ``"direct"``: copied from the pages of the cache, if rows are
            32 KiB or more or lie side by side; an error if the driver refuses that.
            ``"auto"``: direct if possible, else staged.
    """

    transform: Annotated[Callable[..., Any] | None, Option(None, _arguments.function)]
    batch_transform: Annotated[Callable[..., Any] | None, Option(None, _arguments.function)]
    workers: Annotated[int, Option(0)]
    output: Annotated[Output, Option("auto")]
    pin_memory: Annotated[
        PinMemory, Option("auto", partial(_arguments.choice, choices=(True, False, "auto")))
    ]
    device: Annotated[Any, Option(None)]
    device_way: Annotated[
        DeviceWay, Option("auto", partial(_arguments.choice, choices=get_args(DeviceWay)))
    ]


@cache
def options_of(kind: type) -> Mapping[str, tuple[Any, Option]]:
    """The type of each option of a class, and its default and check."""
    hints = get_type_hints(kind, include_extras=True).items()
    return {name: (hint.__origin__, hint.__metadata__[0]) for name, hint in hints}


def checked(kind: type, options: Mapping[str, Any], function: str = "loader") -> dict[str, Any]:
    """All options of a class: those given to a function, each checked, and defaults of the rest."""
    known = options_of(kind)
    if unknown := [name for name in options if name not in known]:
        raise _unknown(unknown[0], function, known)

    def value(name: str, option: Option) -> Any:
        value = options.get(name, option.default)
        return None if value is None is option.default else option.check(name, value)

    return {name: value(name, option) for name, (_, option) in known.items()}


#: Arguments of other loaders, and the arguments of this one that do the same.
_OF_OTHERS = {
    "num_workers": "workers= sets the threads that transform batches ahead",
    "drop_last": "last='drop' drops an incomplete last batch, last='uneven' delivers it",
}


def _unknown(name: str, function: str, known: Collection[str]) -> Exception:
    """The error for an option that a function does not have."""
    if function == "loader" and name in _OF_OTHERS:
        return InvalidArgument(f"loader() has no {name}=", None, _OF_OTHERS[name])
    meant = "".join(
        f". Did you mean {near!r}?" for near in get_close_matches(name, ["batch_size", *known], 1)
    )
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant}")


#: The place of the options in a function's text.
_POINTER = "    options: those of :class:`larder.LoaderOptions`.\n"


def documented(kind: type, **defaults: Any) -> Callable[[_F], _F]:
    """Writes options into the signature and the text of a function that takes ``**options``.

    ``defaults`` are those of this function that differ from those of the class.
    """
    kinds = (OrderOptions, BatchOptions, LoaderOptions)
    texts = (cleandoc(one.__doc__ or "") for one in kinds[: kinds.index(kind) + 1])
    text = "".join(text.partition("Args:\n")[2] + "\n" for text in texts)
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)
        for name, (annotation, option) in options_of(kind).items()
    ]
    options = [one.replace(default=defaults.get(one.name, one.default)) for one in options]

    def write(function: _F) -> _F:
        own = signature(function)
        parameters = [*list(own.parameters.values())[:-1], *options]
        function.__dict__["__signature__"] = own.replace(parameters=parameters)
        if function.__doc__ is not None:
            function.__doc__ = cleandoc(function.__doc__).replace(_POINTER, text)
        return function

    return write
