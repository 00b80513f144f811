"""A Spark host without Spark: real processes, real pipes, a server that only exists.

``python -m tests.spark.fake_host`` is what the stubs of these tests start. ``FAKE_DIR`` is where it
notes what it does; ``FAKE_START`` says how its start goes. On SIGUSR1 it writes the stacks of its
threads there.
"""

import ctypes
import faulthandler
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from kcl_mld.spark.errors import BatchFailed, SparkUnreachable
from kcl_mld.spark.host import main
from kcl_mld.spark.model import ShardKey
from kcl_mld.spark.shard.session import ShardGate

_PACT = ctypes.CDLL(None).prctl


def note(kind, text):
    """One more line in a file of the test's."""
    with (Path(os.environ["FAKE_DIR"]) / kind).open("a") as file:
        file.write(f"{text}\n")


class FakeServer:
    """A process that dies with the host, as the JVM does, and prints on both streams."""

    url, token = "sc://localhost:1", "a-token"

    def __init__(self):
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", "echo noise of the JVM; echo more >&2; exec sleep 600"],
            preexec_fn=lambda: _PACT(1, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509 - no threads yet
        )
        self.pid = self._process.pid
        note("servers", self.pid)
        if "FAKE_WORKER" in os.environ:  # like Spark's Python workers: a group of its own
            stubborn = "import signal, time; signal.signal(1, signal.SIG_IGN); time.sleep(600)"
            worker = subprocess.Popen([sys.executable, "-c", stubborn], process_group=0)
            note("servers", worker.pid)

    def wait_ready(self, timeout_s):
        if os.environ.get("FAKE_START") == "unreachable":
            raise SparkUnreachable("the Spark server ended with exit code 1: no memory")
        if "FAKE_READY_FIFO" in os.environ:  # ready once somebody says so
            Path(os.environ["FAKE_READY_FIFO"]).read_text()

    def poll(self):
        return self._process.poll()

    def last_lines(self):
        return []

    def stop(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class FakeSession:
    """Answers every message; ``do`` in a message makes it do something else first."""

    def __init__(self, facts, stdin, stdout, pipeline, gate):
        self._facts, self._stdin, self._stdout = facts, stdin, stdout
        self._pipeline, self._gate = pipeline, gate
        self._abandoned = threading.Event()
        self.is_under_way = False
        self._lingers = False

    def serve(self):
        shard = ShardKey(self._facts.application, self._facts.stream, self._facts.shard_id or "")
        with self._gate.hold(shard):
            note("sessions", f"begin {shard.shard_id}")
            try:
                self._converse()
                if self._lingers:
                    self._abandoned.wait()
                    threading.Event().wait()
            finally:
                note("sessions", f"end {shard.shard_id}")

    def _converse(self):
        while line := self._stdin.readline():
            message = json.loads(line)
            getattr(self, f"_{message.get('do', 'nothing')}")()
            self.is_under_way = message["action"] != "leaseLost"
            answer = {"action": "status", "responseFor": message["action"]}
            self._stdout.write(json.dumps(answer).encode() + b"\n")

    def abandon(self):
        self._abandoned.set()

    def _nothing(self):
        pass

    def _noise(self):
        print("noise of print")
        os.write(1, b"noise of descriptor 1\n")
        os.system("echo noise of a shell")
        subprocess.run([sys.executable, "-c", "print('noise of a subprocess')"], check=True)

    def _flood(self):
        line = b"f" * 99 + b"\n"
        for _ in range(30_000):  # 3 MB
            os.write(1, line)

    def _fail(self):
        raise BatchFailed("shard-7: the batch failed: disk full")

    def _crash(self):
        raise ValueError("of the session itself")

    def _log(self):

        logging.getLogger("mld.spark.test").warning("%s says hello", self._facts.shard_id)

    def _block(self):
        note("sessions", "blocked")
        self._abandoned.wait()

    def _commit(self):
        """Like a commit that has begun: it is not given up, whoever is gone."""
        note("sessions", "blocked")
        (Path(os.environ["FAKE_DIR"]) / "commit").read_text()

    def _linger(self):
        """Like a job that does not end soon when it is interrupted."""
        self._lingers = True

    def _stick(self):
        note("sessions", "stuck")
        threading.Event().wait()


class FakeService:
    def __init__(self, facts, pipeline):
        self._facts = facts
        self._pipeline = pipeline
        self._gate = ShardGate()

    def session(self, environ, stdin, stdout):
        return FakeSession(self._facts.of_child(environ), stdin, stdout, self._pipeline, self._gate)

    def close(self):
        note("sessions", "closed")


class FakeParts:
    def launch(self, config, directory):
        note("hosts", os.getpid())
        assert threading.active_count() == 1
        assert threading.current_thread() is threading.main_thread()
        return FakeServer() if config.is_embedded else None

    def open(self, config, facts, pipeline, address):
        assert address()[0].startswith("sc://")
        note("places", config.sink_path)
        return FakeService(facts, pipeline)


if __name__ == "__main__":
    stacks = (Path(os.environ["FAKE_DIR"]) / "stacks").open("w")
    faulthandler.register(signal.SIGUSR1, stacks)
    main(parts=FakeParts())
