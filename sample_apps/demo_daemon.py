"""``kcl-mld`` as a process of the demo: its properties, its lag, its end."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

PROPERTIES = """\
# Written by demo.py; the same file works for the Java daemon.
executableName = {program}
applicationName = {application}
streamName = {stream}
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
initialPositionInStream = TRIM_HORIZON
kinesisEndpoint = {kinesis}
dynamoDBEndpoint = {dynamodb}
metricsLevel = NONE
retrievalMode = POLLING
idleTimeBetweenReadsInMillis = 500
shutdownGraceMillis = 20000
"""
STOP_TIMEOUT_S = 60


def write_properties(path, aws, program, application, stream, more=""):
    """A properties file for the embedded AWS; ``more`` is appended as it is."""
    text = PROPERTIES.format(
        program=program,
        application=application,
        stream=stream,
        kinesis=aws.kinesis_url,
        dynamodb=aws.moto_url,
    )
    path.write_text(text + more, encoding="latin-1")
    return path


def free_port():
    """A port of the loopback interface that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """One running worker.

    Args:
        properties: path of its file.
        log: path of the file that takes what it says.
        environment: of it and of its children.
    """

    def __init__(self, properties, log, environment):
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/leases"
        command = [sys.executable, "-m", "kcl_mld", "--properties", str(properties)]
        with log.open("w", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                [*command, "--http", f"127.0.0.1:{port}"],
                env=environment,
                stderr=out,
                stdout=out,
            )

    def check(self):
        """End the demo if the worker has ended by itself."""
        if self.process.poll() is not None:
            raise SystemExit(f"the daemon ended early with exit code {self.process.returncode}")

    def worst_lag_s(self):
        """Largest lag of any shard in seconds as ``/leases`` reports it, or None."""
        try:
            with urllib.request.urlopen(self._url, timeout=2) as answer:
                leases = json.load(answer)["leases"]
        except (OSError, ValueError, KeyError):
            return None
        lags = [one["millis_behind_latest"] for one in leases if one.get("millis_behind_latest")]
        return max(lags, default=0) / 1000

    def stop(self):
        """SIGTERM; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self):
        """``kill -9``; nothing can be tidied up."""
        self.process.kill()
        self.process.wait()


def lag_text(lag_s):
    """For the label of a progress bar."""
    return "?" if lag_s is None else f"{lag_s:.1f} s"


def processes_with(variable, value):
    """Living processes with a variable in their environment; None where there is no ``/proc``."""
    if not pathlib.Path("/proc/self/environ").exists():
        return None
    wanted = f"{variable}={value}".encode()
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def wait_gone(variable, value, timeout_s):
    """Wait until no process with the variable lives; those that still do."""
    deadline = time.monotonic() + timeout_s
    while (left := processes_with(variable, value)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left
