"""Reading what a process costs from /proc, and running one under measurement."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import kcl_mld
from tests.peer import fetched

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    """User plus system seconds of a process so far, its children excluded."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid, field="VmRSS"):
    """Resident memory now (VmRSS) or at its peak (VmHWM)."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise ValueError(field)


class Progress:
    """What the children say in a folder: one file a child, a decimal count."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def started(self):
        """Children that have answered initialize."""
        return len(list(self.folder.iterdir()))

    def records(self):
        """Records seen by all of them."""
        return sum(int(path.read_text() or 0) for path in self.folder.iterdir())


def wait_until(condition, timeout_s, process, pause_s=0.005):
    """Poll a condition; the process must stay alive.

    Raises:
        SystemExit: the process ended or time ran out.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if process.poll() is not None:
            raise SystemExit(f"{process.args} ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise SystemExit(f"{process.args}: not done after {timeout_s} s")
        time.sleep(pause_s)


@contextlib.contextmanager
def workspace():
    """A temporary folder that is gone afterwards."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kcl-mld-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def properties_of(
    aws: Any,
    *,
    stream: str,
    app: str,
    child: str,
    extra: str = "",
    mode: str = "POLLING",
    table_url: str | None = None,
    java: str | None = None,
) -> str:
    """The file of a worker; the arguments are those of :func:`daemon`."""
    # Java 2.x knows no other spelling of this key.
    provider = "DefaultCredentialsProvider" if java is None else fetched.provider(java)
    return f"""\
executableName = {child}
applicationName = {app}
streamName = {stream}
AWSCredentialsProvider = {provider}
regionName = us-east-1
initialPositionInStream = TRIM_HORIZON
kinesisEndpoint = {aws.kinesis_url}
dynamoDBEndpoint = {table_url or aws.moto_url}
{"" if "metricsLevel" in extra else "metricsLevel = NONE"}
retrievalMode = {mode}
{extra}
"""


def worker_command(java: str | None = None, jvm: Sequence[str] = fetched.JVM) -> list[str]:
    """Of ``kcl-mld`` or of a version of the Java MultiLangDaemon; the name of a file follows."""
    if java is None:
        return [sys.executable, "-m", "kcl_mld", "--properties"]
    return fetched.multilang_command(java, jvm)


@contextlib.contextmanager
def daemon(  # noqa: PLR0913
    aws,
    folder,
    *,
    stream,
    app,
    child,
    extra="",
    mode="POLLING",
    table_url=None,
    stderr=None,
    arguments=(),
    java=None,
    jvm=fetched.JVM,
):
    """A worker on a properties file; stopped gracefully at the end. Yields (process, Progress).

    Args:
        extra: more lines of the file.
        mode: how it gets records.
        table_url: of another DynamoDB than the embedded one.
        stderr: a file for its log; None = ours.
        arguments: more of its command line.
        java: version of the Java MultiLangDaemon; None = ``kcl-mld``.
        jvm: the virtual machine with its options.
    """
    out = folder / f"out-{app}-{time.monotonic_ns()}"
    out.mkdir()
    properties = folder / f"{app}.properties"
    properties.write_text(
        properties_of(
            aws,
            stream=stream,
            app=app,
            child=child,
            extra=extra,
            mode=mode,
            table_url=table_url,
            java=java,
        )
    )
    quiet = () if java else ("--log-level", "WARNING")
    process = subprocess.Popen(
        [*worker_command(java, jvm), str(properties), *quiet, *arguments],
        env=aws.environment_for_child() | compiled(folder) | {"BENCH_OUT": str(out)},
        stdout=stderr if java else None,  # Java logs there
        stderr=stderr,
        # As a service has it: the kernel shares the processors among sessions first.
        start_new_session=True,
    )
    try:
        yield process, Progress(out)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def compiled(folder):
    """Environment in which modules are compiled once, as those that pip installed are."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


@contextlib.contextmanager
def peer(aws, folder, *, stream, child, limit, idle_s):
    """The boto3 pipeline on the same stream. Yields (process, Progress)."""
    out = folder / f"out-peer-{time.monotonic_ns()}"
    out.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.boto3_pipeline", stream, child, str(limit), str(idle_s)],
        stdin=subprocess.PIPE,
        env=aws.environment_for_child() | {"BENCH_OUT": str(out), "PYTHONPATH": shim_path()},
    )
    try:
        yield process, Progress(out)
    finally:
        process.kill()
        process.wait()


def shim_path():
    """Folder that gives the peer's children the same kclpy as the daemon's."""

    return str(pathlib.Path(kcl_mld.__file__).parent / "shim")
