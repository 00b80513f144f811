"""How an app hands over what it does: :func:`run` in its program, :func:`load_app` around it.

An app is a program that ends in :func:`run`. In the host, :func:`load_app` executes the program as
``__main__`` and takes what ``run`` was given; anywhere else ``run`` turns the process into the relay
stub of the shard, which finds or starts the host.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from kcl_mld.spark.errors import SparkConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from kcl_mld.spark.batch_context import BatchContext

#: Decoders and policies that :func:`run` takes; the table of keys has the same words.
DECODERS = ("raw", "json", "csv", "avro", "dynamodb")
POLICIES = ("fail", "null", "deadletter")


@dataclass(frozen=True)
class Pipeline:
    """What an app registered.

    Attributes:
        function: called once a batch, for all shards.
        schema: columns of the decoded data as DDL, or an Avro schema in JSON; None = the
            property ``spark.decoder.schema``.
        decoder: one of :data:`DECODERS`; None = the property ``spark.decoder``.
        on_error: ``fail``, ``null`` or ``deadletter``; None = the property ``spark.decoder.onError``.
        is_rowwise: the function treats each record by itself.
    """

    function: Callable[[DataFrame, BatchContext], DataFrame | None]
    schema: str | None = None
    decoder: str | None = None
    on_error: str | None = None
    is_rowwise: bool = False


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
    process: Callable[[DataFrame, BatchContext], DataFrame | None],
    *,
    schema: str | None = None,
    decoder: str | None = None,
    on_error: str | None = None,
    rowwise: bool = False,
) -> NoReturn:
    """Register what the app does with its records; the last statement of the program.

    Does not return. Under ``python app.py`` the process becomes the relay stub of its shard; what
    the program prints before that goes to the daemon, which skips it, if Python is unbuffered.

    Args:
        process: ``process(df, ctx)``: called once a batch, for all shards. It returns the rows for
            the configured sink, or None if it wrote them itself (``spark.sink=foreach``).
        schema: columns of the decoded data as DDL (``"user string, amount double"``), or an Avro
            schema in JSON; None = the property ``spark.decoder.schema``.
        decoder: ``raw``, ``json``, ``csv``, ``avro`` or ``dynamodb``; None = the property ``spark.decoder``.
        on_error: what a record does that can't be decoded: ``fail``, ``null`` or ``deadletter``;
            None = the property ``spark.decoder.onError``.
        rowwise: ``process`` treats each record by itself: what becomes of one never depends on the
            others. ``spark.function.onError = deadletter`` needs it, to find the record that fails.

    Raises:
        SparkConfigError: an argument is wrong, or ``run`` is called a second time.
    """
    pipeline = Pipeline(
        _function(process),
        _text("schema", schema),
        _word("decoder", decoder, DECODERS),
        _word("on_error", on_error, POLICIES),
        rowwise,
    )
    if _loading is None:
        _become_stub()
    if _loading.registered is not None:
        raise SparkConfigError("run() was called twice: an app has one pipeline")
    _loading.registered = pipeline
    raise _Registered(pipeline)


def _function(value: Any) -> Callable[[DataFrame, BatchContext], DataFrame | None]:
    if not callable(value) or isinstance(value, type):
        raise SparkConfigError(f"run(): {value!r} is not a function process(df, ctx)")
    return value  # type: ignore[no-any-return]


def _text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise SparkConfigError(f"run({name}=…) takes a text, not a {type(value).__name__}")
    return value


def _word(name: str, value: Any, words: tuple[str, ...]) -> str | None:
    if value is not None and value not in words:
        raise SparkConfigError(f"run({name}={value!r}): not one of {', '.join(words)}")
    return _text(name, value)


def _become_stub() -> NoReturn:
    """Replace this process by the stub; what it has buffered for stdout is dropped with it."""
    from kcl_mld.spark import stub  # noqa: PLC0415 - the host never needs it

    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise SparkConfigError("run() must be called by a program in a file: python app.py")
    sys.stderr.flush()
    os.execv(sys.executable, stub.command(os.path.abspath(path), sys.argv[1:]))  # noqa: S606


def load_app(path: str | Path, args: Sequence[str] = ()) -> Pipeline:
    """Execute an app as ``python app.py args`` would, up to its call of :func:`run`.

    The process is the app's from then on: ``__main__``, ``sys.argv`` and ``sys.path[0]`` stay.

    Raises:
        SparkConfigError: there is no such file, it does not end in ``run()``, or it called it twice or
            with wrong arguments.
        Exception: whatever the app raised before.
    """
    global _loading  # noqa: PLW0603 - run() has no other way to know who executes the app
    file = Path(path).resolve()
    try:
        code = compile(file.read_bytes(), str(file), "exec")
    except OSError as error:
        raise SparkConfigError(f"the app {path} can't be read: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise SparkConfigError(f"the app {path} is not a Python program: {error}") from error
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
        raise SparkConfigError(
            f"the app {path} ended before run(): exit code {error.code}"
        ) from error
    finally:
        _loading = None
    if loading.registered is not None:
        raise SparkConfigError(f"the app {path} went on after run(): call it last, outside any try")
    raise SparkConfigError(f"the app {path} did not call run()")
