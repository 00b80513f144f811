"""What an app registers, and how the host gets at it.

An app is a program that ends in :func:`run`. In the host, :func:`load_app` executes the program as
``__main__`` and takes what ``run`` was given; anywhere else ``run`` turns the process into the relay
stub of the shard, which finds or starts the host.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from mld.spark.errors import ConfigError
from protocol.child import (
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    RecordProcessor,
    ShardEndedInput,
    ShutdownRequestedInput,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from mld.spark.model import BatchContext, ShardKey

#: Decoders and policies that :func:`run` takes; the table of keys has the same words.
DECODERS = ("raw", "json", "csv", "avro")
POLICIES = ("fail", "null", "deadletter")


class ShardFeed(Protocol):
    """What the messages of the daemon do to a shard unless a processor says otherwise.

    The session of the shard is one; nothing else should be.
    """

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Find where to begin, ask for ticks."""

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Buffer, cut, submit what is due, checkpoint what is durable."""

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        """Interrupt what runs, forget the rest."""

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """Make everything durable, then checkpoint the end of the shard."""

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """Make everything durable that the deadline allows, and checkpoint it."""


class SparkRecordProcessor(RecordProcessor):
    """One shard's processor, with the methods of ``amazon_kclpy.v3`` intact.

    Override :meth:`process`. The other methods are called for the daemon's messages, in the thread
    that serves the shard; one that is overridden must call ``super()``, because the records take
    their way to Spark through it. Checkpoints follow the commits by themselves: the checkpointer
    of the inputs refuses to be called.

    One instance serves one shard. ``process`` is called in another thread than the rest.
    """

    _feed: ShardFeed | None = None

    def process(self, df: DataFrame, ctx: BatchContext) -> DataFrame | None:
        """Plan a batch: return the rows for the sink, or None if the function wrote them itself.

        Args:
            df: the records of the batch, decoded.
            ctx: which shard, which batch, the session.
        """
        raise NotImplementedError(f"{type(self).__name__} must override process(self, df, ctx)")

    def initialize(self, initialize_input: InitializeInput) -> None:
        """The shard begins, or begins again."""
        self._fed.initialize(initialize_input)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Records arrived; they are processed when a batch is due, not now."""
        self._fed.process_records(process_records_input)

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        """Another worker has the shard: what is not committed is its business."""
        self._fed.lease_lost(lease_lost_input)

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """The shard is finished: everything is made durable, then its end is checkpointed."""
        self._fed.shard_ended(shard_ended_input)

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """The worker stops: everything is made durable and checkpointed."""
        self._fed.shutdown_requested(shutdown_requested_input)

    @property
    def _fed(self) -> ShardFeed:
        if self._feed is None:
            raise RuntimeError(f"{type(self).__name__} is called by the Spark host only")
        return self._feed


class _FunctionProcessor(SparkRecordProcessor):
    """The processor of an app that registered a function."""

    def __init__(self, function: Callable[[DataFrame, BatchContext], DataFrame | None]) -> None:
        self._function = function

    def process(self, df: DataFrame, ctx: BatchContext) -> DataFrame | None:
        return self._function(df, ctx)


@dataclass(frozen=True)
class Pipeline:
    """What an app registered.

    Attributes:
        new_processor: makes the processor of one shard.
        schema: columns of the decoded data as DDL, or an Avro schema in JSON; None = the
            property ``spark.decoder.schema``.
        decoder: one of ``DECODERS``; None = the property ``spark.decoder``.
        on_error: one of ``POLICIES``; None = the property ``spark.decoder.onError``.
    """

    new_processor: Callable[[], SparkRecordProcessor]
    schema: str | None = None
    decoder: str | None = None
    on_error: str | None = None
    _open: dict[tuple[str, str], SparkRecordProcessor] = field(default_factory=dict, repr=False)

    def open(self, shard: ShardKey, feed: ShardFeed) -> SparkRecordProcessor:
        """Make the processor of a shard; the session calls its methods for the daemon's messages.

        Args:
            shard: whose; a shard is open once at a time.
            feed: what the processor's own methods do, normally the session.

        Raises:
            ConfigError: the app's factory gave something else.
        """
        processor = self.new_processor()
        if not isinstance(processor, SparkRecordProcessor):
            raise ConfigError(
                f"run(processor=…) made a {type(processor).__name__}; "
                f"it must make a SparkRecordProcessor"
            )
        processor._feed = feed  # noqa: SLF001 - set here and nowhere else
        self._open[shard.stream, shard.shard_id] = processor
        return processor

    def close(self, shard: ShardKey) -> None:
        """Forget the processor of a shard; quiet if there is none."""
        self._open.pop((shard.stream, shard.shard_id), None)

    def process(self, df: DataFrame, ctx: BatchContext) -> DataFrame | None:
        """Plan a batch by the processor of its shard.

        Raises:
            KeyError: the shard is not open.
            Exception: whatever the user's function raised.
        """
        return self._open[ctx.stream_name, ctx.shard_id].process(df, ctx)


class _Registered(BaseException):
    """Carries the pipeline out of the app: ``run`` does not return."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        super().__init__("run() was called")


@dataclass
class _Loading:
    """What :func:`run` finds when a program is executed by :func:`load_app`."""

    registered: Pipeline | None = None


_loading: _Loading | None = None


def run(
    process: Callable[[DataFrame, BatchContext], DataFrame | None] | None = None,
    *,
    schema: str | None = None,
    decoder: str | None = None,
    on_error: str | None = None,
    processor: Callable[[], SparkRecordProcessor] | None = None,
) -> NoReturn:
    """Register what the app does with its records; the last statement of the program.

    Does not return. Under ``python app.py`` the process becomes the relay stub of its shard; what
    the program prints before that goes to the daemon, which skips it, if Python is unbuffered.

    Args:
        process: ``process(df, ctx)``: called per shard and batch to build a plan. It returns the
            rows for the configured sink, or None if it wrote them itself (``spark.sink=foreach``).
        schema: columns of the decoded data as DDL (``"user string, amount double"``), or an Avro
            schema in JSON; None = the property ``spark.decoder.schema``.
        decoder: ``raw``, ``json``, ``csv`` or ``avro``; None = the property ``spark.decoder``.
        on_error: what a record does that can't be decoded: ``fail``, ``null`` or ``deadletter``;
            None = the property ``spark.decoder.onError``.
        processor: instead of ``process``, a subclass of :class:`SparkRecordProcessor` or a function
            that makes one; called once a shard.

    Raises:
        ConfigError: an argument is wrong, or ``run`` is called a second time.
    """
    pipeline = Pipeline(
        _maker(process, processor),
        _text("schema", schema),
        _word("decoder", decoder, DECODERS),
        _word("on_error", on_error, POLICIES),
    )
    if _loading is None:
        _become_stub()
    if _loading.registered is not None:
        raise ConfigError("run() was called twice: an app has one pipeline")
    _loading.registered = pipeline
    raise _Registered(pipeline)


def _maker(process: Any, processor: Any) -> Callable[[], SparkRecordProcessor]:
    if (process is None) == (processor is None):
        raise ConfigError("run() takes either a function process(df, ctx) or processor=…")
    if processor is not None:
        if isinstance(processor, SparkRecordProcessor):
            raise ConfigError(
                "run(processor=…) takes the class or a function that makes an instance, not an "
                "instance: every shard needs its own"
            )
        if not callable(processor):
            raise ConfigError(f"run(processor=…): {processor!r} cannot be called")
        return processor  # type: ignore[no-any-return]
    if isinstance(process, type) and issubclass(process, SparkRecordProcessor):
        raise ConfigError(f"write run(processor={process.__name__}) for a class")
    if not callable(process):
        raise ConfigError(f"run(): {process!r} is no function process(df, ctx)")
    return lambda: _FunctionProcessor(process)


def _text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"run({name}=…) takes a text, not a {type(value).__name__}")
    return value


def _word(name: str, value: Any, words: tuple[str, ...]) -> str | None:
    if value is not None and value not in words:
        raise ConfigError(f"run({name}={value!r}): not one of {', '.join(words)}")
    return _text(name, value)


def _become_stub() -> NoReturn:
    """Replace this process by the stub; what it has buffered for stdout is dropped with it."""
    from mld.spark import stub  # noqa: PLC0415 - the host never needs it

    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise ConfigError("run() must be called by a program in a file: python app.py")
    sys.stderr.flush()
    os.execv(sys.executable, stub.command(os.path.abspath(path), sys.argv[1:]))  # noqa: S606


def load_app(path: str | Path, args: Sequence[str] = ()) -> Pipeline:
    """Execute an app as ``python app.py args`` would, up to its call of :func:`run`.

    The process is the app's from then on: ``__main__``, ``sys.argv`` and ``sys.path[0]`` stay.

    Args:
        path: of the program.
        args: what follows it on the command line.

    Raises:
        ConfigError: there is no such file, it does not end in ``run()``, or it called it twice or
            with wrong arguments.
        Exception: whatever the app raised before.
    """
    global _loading  # noqa: PLW0603 - run() has no other way to know who executes the app
    file = Path(path).resolve()
    try:
        code = compile(file.read_bytes(), str(file), "exec")
    except OSError as error:
        raise ConfigError(f"the app {path} can't be read: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"the app {path} is no Python program: {error}") from error
    main = ModuleType("__main__")
    main.__dict__.update(__file__=str(file), __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *args]
    sys.path.insert(0, str(file.parent))
    _loading = loading = _Loading()
    try:
        exec(code, main.__dict__)  # noqa: S102 - it is the user's program
    except _Registered as registered:
        return registered.pipeline
    except SystemExit as error:
        raise ConfigError(f"the app {path} ended before run(): exit code {error.code}") from error
    finally:
        _loading = None
    if loading.registered is not None:
        raise ConfigError(f"the app {path} went on after run(): call it last, outside any try")
    raise ConfigError(f"the app {path} did not call run()")
