"""Children of a daemon that the test plays itself, on the fake host."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
APP = """from kcl_mld.spark import run

print("noise of the app")
run(lambda df, ctx: df)
"""
STUB = "import sys; from kcl_mld.spark import stub; stub.main(host_module='tests.spark.fake_host')"
PATIENCE_S = 60.0
KEEP_ALIVE = b'{"action":"leaseLost"}\n'


def wait_for(condition, what, patience_s=PATIENCE_S):
    """Until it is true; what came out. Looks are counted: a paused machine's clock jumps."""
    pause_s = 0.02
    for _ in range(int(patience_s / pause_s)):
        if found := condition():
            return found
        time.sleep(pause_s)
    raise AssertionError(f"in vain: {what}")


def is_alive(pid):
    """False for a zombie too."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Child:
    """A stub as its daemon sees it."""

    def __init__(self, argv, environ):
        self.process = subprocess.Popen(
            argv,
            env=environ,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._out, self._err = b"", b""

    def say(self, action, **more):
        line = json.dumps({"action": action, **more}).encode() + b"\n"
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def hear(self, patience_s=PATIENCE_S):
        """The next line of stdout but for keep-alives; b"" at its end."""
        while (line := self.hear_any(patience_s)) == KEEP_ALIVE:
            pass
        return line

    def hear_any(self, patience_s=PATIENCE_S):
        """The next line of stdout; b"" at its end."""
        while b"\n" not in self._out:
            if not (chunk := self._read(self.process.stdout, patience_s)):
                return self._out
            self._out += chunk
        line, _, self._out = self._out.partition(b"\n")
        return line + b"\n"

    def ask(self, action, **more):
        self.say(action, **more)
        return json.loads(self.hear())

    def begin(self):
        assert self.ask("initialize") == {"action": "status", "responseFor": "initialize"}
        return self

    def errors_until(self, text, patience_s=PATIENCE_S):
        """What stderr holds once it holds a text."""
        while text.encode() not in self._err:
            chunk = self._read(self.process.stderr, patience_s)
            assert chunk, f"{text!r} is not in {self.errors()!r}"
            self._err += chunk
        return self._err.decode()

    def errors(self):
        return self._err.decode(errors="replace")

    def end(self, patience_s=PATIENCE_S):
        """Exit code, and all of stderr."""
        code = self.process.wait(patience_s)
        while chunk := self._read(self.process.stderr, patience_s):
            self._err += chunk
        return code, self._err.decode()

    def _read(self, pipe, patience_s):
        ready, _, _ = select.select([pipe], [], [], patience_s)
        assert ready, f"nothing came; stderr: {self._err!r}"
        return os.read(pipe.fileno(), 1 << 16)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


class Worker:
    """A daemon's process id, and its children."""

    def __init__(self, folder, *, app=APP, **properties):
        self.folder = folder
        self.app = folder / "app.py"
        self.app.write_text(app)
        self.properties = {"spark.host.linger": "30s", **properties}
        self.environ = {}
        self.daemon = subprocess.Popen(["sleep", "600"])
        self.children = []

    def child(self, shard="shardId-000000000000", argv=None):
        environ = os.environ | {
            "FAKE_DIR": str(self.folder),
            "TMPDIR": str(self.folder),
            "PYTHONPATH": str(ROOT),  # of the fake host
            "KCL_MLD_PID": str(self.daemon.pid),
            "KCL_SHARD_ID": shard,
            "KCL_APPLICATION_NAME": "app",
            "KCL_STREAM_NAME": "stream",
            "KCL_MLD_SPARK": json.dumps(self.properties),
            **self.environ,
        }
        environ = {name: text for name, text in environ.items() if text is not None}
        child = Child(argv or [sys.executable, "-c", STUB, str(self.app)], environ)
        self.children.append(child)
        return child

    def noted(self, kind):
        path = self.folder / kind
        return path.read_text().split("\n")[:-1] if path.exists() else []

    @property
    def hosts(self):
        return [int(line) for line in self.noted("hosts")]

    @property
    def servers(self):
        return [int(line) for line in self.noted("servers")]

    def is_over(self):
        return not any(map(is_alive, self.hosts + self.servers))

    def wait_until_over(self, what, patience_s):
        """Until hosts and servers have ended; a failure says who has not, and what hosts do."""
        try:
            wait_for(self.is_over, what, patience_s)
        except AssertionError as error:
            left = [pid for pid in self.hosts + self.servers if is_alive(pid)]
            for pid in set(left) & set(self.hosts):
                os.kill(pid, signal.SIGUSR1)
            time.sleep(1)
            said = "\n".join(self.noted("stacks"))
            raise AssertionError(f"{error}; alive: {left}; hosts {self.hosts}\n{said}") from None

    def close(self):
        for child in self.children:
            child.close()
        self.daemon.kill()
        self.daemon.wait()
        wait_for(self.is_over, "the host ends with its daemon", 8.0)


def kill(pid):
    os.kill(pid, signal.SIGKILL)
