"""The embedded AWS as a child process of a test, a demo, a benchmark or ``kcl-mld local``."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import urllib.error
import urllib.request
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import kcl_mld
from kcl_mld.errors import ConfigError, MldError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

#: Folder from which this package was imported.
_ROOT = Path(kcl_mld.__file__).absolute().parent.parent
_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 5
#: Of an order; on a busy machine it waits while the server is still loading.
_CONTROL_TIMEOUT_S = 60
#: Of the child when its arguments are to blame.
_USAGE_EXIT = 2
#: What the child imports that a plain installation lacks.
_PACKAGES = ("uvicorn", "h11", "moto", "flask")


class EmbeddedAwsFailed(MldError):
    """The embedded AWS did not start; the reason is on its stderr."""


class EmbeddedAwsRefused(EmbeddedAwsFailed):
    """It did not start because of its arguments, e.g. a port that is taken."""

    exit_code = 2


class ControlRefused(MldError):
    """:meth:`EmbeddedAws.control` refused its arguments: the text says where."""

    exit_code = 2


class EmbeddedAws:
    """Kinesis, DynamoDB, CloudWatch and STS on loopback, in one child process.

    The child ends with this process, however that ends: its standard input is a pipe from here.
    Use as a context manager, or call :meth:`start` and :meth:`stop`.

    Args:
        kinesis_port: 0 = any free port.
        moto_port: 0 = any free port.
        options: further arguments of ``python -m kcl_mld.local``, e.g. ``("--reshard-s", "0.5")``.
    """

    def __init__(
        self,
        *,
        kinesis_port: int = 0,
        moto_port: int = 0,
        region: str = "us-east-1",
        options: Sequence[str] = (),
    ) -> None:
        self.region = region
        self._arguments = [
            *(sys.executable, "-m", "kcl_mld.local"),
            *("--kinesis-port", str(kinesis_port)),
            *("--moto-port", str(moto_port)),
            *("--region", region),
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoints: dict[str, str] = {}

    def start(self) -> Self:
        """Start the child and wait until both servers listen.

        Raises:
            ConfigError: a package of the extra ``[local]`` is missing.
            EmbeddedAwsRefused: a port is taken.
            EmbeddedAwsFailed: it ended or was silent for 60 s; the reason is on its stderr.
        """
        for package in _PACKAGES:
            if importlib.util.find_spec(package) is None:
                why = f"the embedded AWS needs the package {package}"
                raise ConfigError(f"{why}: pip install 'kcl-mld[local]'")
        # A session of its own: Ctrl-C in a terminal reaches this process alone, which stops it.
        process = subprocess.Popen(  # noqa: S603 (this interpreter, our own module)
            self._arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # -m looks there first: where the user stands may be a module with the name of one of ours.
            cwd=_ROOT,
            start_new_session=True,
        )
        self._process = process
        try:
            self._endpoints = _first_line(process)
        except BaseException as error:
            self.stop()
            if isinstance(error, EmbeddedAwsFailed) and process.returncode == _USAGE_EXIT:
                raise EmbeddedAwsRefused(str(error)) from None
            raise
        return self

    def stop(self) -> None:
        """End the child; does nothing when it is not there."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def kinesis_url(self) -> str:
        """Endpoint of Kinesis."""
        return self._endpoints["kinesis"]

    @property
    def moto_url(self) -> str:
        """Endpoint of DynamoDB, CloudWatch and STS."""
        return self._endpoints["moto"]

    @property
    def environment(self) -> dict[str, str]:
        """What an AWS client needs in its environment to talk to this and to nothing else."""
        return {
            "AWS_ENDPOINT_URL": self.moto_url,
            "AWS_ENDPOINT_URL_KINESIS": self.kinesis_url,
            "AWS_ENDPOINT_URL_DYNAMODB": self.moto_url,
            "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": self.moto_url,
            "AWS_ENDPOINT_URL_CLOUDWATCH": self.moto_url,
            "AWS_ENDPOINT_URL_STS": self.moto_url,
            "AWS_ACCESS_KEY_ID": "embedded",
            "AWS_SECRET_ACCESS_KEY": "embedded",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def environment_for_child(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """``base`` (this process's environment) without other AWS settings, with ours."""
        source = os.environ if base is None else base
        kept = {name: value for name, value in source.items() if not name.startswith("AWS_")}
        return {**kept, **self.environment}

    @cached_property
    def _session(self) -> Any:
        """One for all clients: botocore reads its data files once."""
        # Slow to import, and most users only start the server.
        import botocore.session  # noqa: PLC0415

        return botocore.session.Session()

    def client(self, service: str, **options: Any) -> Any:
        """A botocore client of ``kinesis``, ``dynamodb``, ``dynamodbstreams``, ``cloudwatch`` or ``sts``."""
        from botocore.config import Config  # noqa: PLC0415 - see _session

        config = Config(proxies={}).merge(options.pop("config", Config()))
        return self._session.create_client(
            service,
            region_name=self.region,
            endpoint_url=self.kinesis_url if service == "kinesis" else self.moto_url,
            aws_access_key_id="embedded",
            aws_secret_access_key="embedded",  # noqa: S106 (nothing checks it)
            config=config,
            **options,
        )

    def control(
        self,
        *,
        settings: Mapping[str, Any] | None = None,
        faults: Sequence[Mapping[str, Any]] | None = None,
        table_streams: Mapping[str, Any] | None = None,
        replace_shards: int = 0,
        advance_s: float = 0.0,
        consumers: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Change the server's behavior and see its counts.

        Args:
            settings: fields of :class:`kcl_mld.local.kinesis.KinesisSettings`.
            faults: fields of :class:`kcl_mld.local.faultplan.FaultRule`, one mapping a rule; they
                replace all earlier rules. None leaves them, an empty list removes them.
            table_streams: fields of :class:`kcl_mld.local.dynamodb_streams.TableStreamSettings`.
            replace_shards: every open shard of a table's stream is replaced by that many; 0 = none.
            advance_s: seconds by which the clock of Kinesis and of streams of tables goes forward.
            consumers: ARNs of consumers that there shall be from now on.

        Raises:
            ControlRefused: it refuses what makes no sense, such as a fault of an operation that
                there is not; says which, and what was perhaps meant. Nothing is changed but for
                consumers before the one that it refuses.

        Returns: ``now_s``, ``settings``, ``table_streams``, ``subscriptions`` being served, ``calls`` and ``faults``
            counted so far.
        """
        wanted: dict[str, Any] = {
            "settings": dict(settings or {}),
            "table_streams": dict(table_streams or {}),
            "replace_shards": replace_shards,
            "advance_s": advance_s,
            "consumers": list(consumers),
        }
        if faults is not None:
            wanted["faults"] = [dict(rule) for rule in faults]
        request = urllib.request.Request(  # noqa: S310 (our own loopback address)
            f"{self.kinesis_url}/_control", data=json.dumps(wanted).encode(), method="POST"
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=_CONTROL_TIMEOUT_S) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise ControlRefused(_words(error.read())) from None
        return answer


def _words(body: bytes) -> str:
    """The message of a refusal."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, LookupError, TypeError):
        return body.decode("utf-8", "replace") or "the request was refused without a word"


def _first_line(process: subprocess.Popen[bytes]) -> dict[str, str]:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _START_TIMEOUT_S)
    line = process.stdout.readline() if ready else b""
    if not line:
        raise EmbeddedAwsFailed("the embedded AWS did not start")
    endpoints: dict[str, str] = json.loads(line)
    return endpoints
