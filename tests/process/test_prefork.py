"""Children from a template are as those that are executed; what can't be so starts as usual."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.children.adapters import prefork, template_main
from kcl_mld.children.adapters.child_process import ChildProcess, ProcessLauncher
from kcl_mld.children.adapters.prefork import PreforkLauncher
from kcl_mld.children.adapters.template_main import UNKNOWN_STATUS
from tests.kclpy_cache import kclpy
from tests.process.daemon import PATIENCE_S, alive, wait_until
from tests.process.test_client_libraries import PYTHON, hang, live

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="templates are for Linux"),
]

SHARD = {"KCL_SHARD_ID": "shardId-7", "KCL_LEASE_KEY": "shardId-7", "KCL_MLD_PID": "1"}
#: Says all that a program may know of how it was started.
REPORT = '''\
"""Some words."""
import json, os, random, signal, sys

def frames():
    raise ValueError("told")

print(json.dumps({
    "main": {name: str(value) for name, value in sorted(globals().items())
             if name.startswith("__") and name not in ("__loader__", "__annotations__")},
    "module": sys.modules["__main__"].__dict__ is globals(),
    "argv": sys.argv, "orig": sys.orig_argv, "path": sys.path, "flags": str(sys.flags),
    "executable": sys.executable, "name": open("/proc/self/comm").read(),
    "environment": dict(os.environ), "cwd": os.getcwd(), "umask": os.umask(0),
    "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "signals": {str(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
    "mask": [*signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "open": sorted(int(n) for n in os.listdir("/proc/self/fd"))[:4],
    "streams": [f"{s.name} {s.mode} {s.encoding} {s.errors} {s.line_buffering} {s.write_through}"
                for s in (sys.stdin, sys.stdout, sys.stderr)],
    "inheritable": [os.get_inheritable(n) for n in range(3)],
    "read": sys.stdin.readline(),
}, sort_keys=True))
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    return tmp_path


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO)

    def said() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]

    return said


@dataclass
class End:
    """What a child left."""

    status: int
    out: str
    err: list[str]
    pid: int


@dataclass
class Children:
    """Children of one launcher."""

    launcher: Any
    running: list[ChildProcess] = field(default_factory=list)

    async def start(
        self, argv: Sequence[str], env: Mapping[str, str] = SHARD, err: list[bytes] | None = None
    ) -> ChildProcess:
        lines = [] if err is None else err
        child: ChildProcess = await self.launcher.start(argv, env, lines.append)
        self.running.append(child)
        return child

    async def end(
        self, argv: Sequence[str], env: Mapping[str, str] = SHARD, said: bytes = b""
    ) -> End:
        """A whole life."""
        err: list[bytes] = []
        child = await self.start(argv, env, err)
        with contextlib.suppress(BrokenPipeError):
            await child.write(said)
        await child.close_stdin()
        out = b""
        while data := await child.read():
            out += data
        status = await child.wait()
        return End(status, out.decode(), [line.decode() for line in err], child.pid)


def play(scene: Callable[[Children], Awaitable[None]], launcher: Any = None) -> None:
    """Run a scene with a launcher; nothing is left afterwards."""

    async def run() -> None:
        children = Children(launcher or PreforkLauncher())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scene(children)
        finally:
            for child in children.running:
                child.kill()
                await child.wait()
            if isinstance(children.launcher, PreforkLauncher):
                children.launcher.close()

    asyncio.run(run())


def written(path: str, text: str, mode: int = 0o755) -> str:
    Path(path).write_text(text)
    Path(path).chmod(mode)
    return path


def parent(pid: int) -> int:
    """Of a process; 0 if there is none any more."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def ends(argv: Sequence[str], env: Mapping[str, str] = SHARD, said: bytes = b"") -> list[End]:
    """The end of an ordinary child, and those of two from one template."""
    found: list[End] = []

    async def ordinary(children: Children) -> None:
        found.append(await children.end(argv, env, said))

    async def forked(children: Children) -> None:
        found.extend([await children.end(argv, env, said) for _ in range(2)])

    play(ordinary, ProcessLauncher())
    play(forked)
    return found


def test_a_forked_child_that_is_terminated_says_where_it_was(here: Path) -> None:
    async def forked(children: Children) -> None:
        said = await hang([*PYTHON, "3", "checkpoint"], SHARD, children.launcher)
        assert "(most recent call first):" in said
        assert "in run" in said

    play(forked)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "./app.py", "a", ""],
        ["python", "-u", "-O", "-W", "error", "sub/../app.py"],
        ["python", "-I", "-X", "utf8", "app.py"],
        ["./app.py", "b"],
        ["sub/link"],
        ["in-path.py"],
    ],
)
def test_a_child_finds_all_as_an_executed_one_does(
    here: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    warnings: Callable[[], list[str]],
) -> None:
    python = sys.executable
    written("app.py", f"#!{python}\n{REPORT}")
    (here / "sub" / "link").symlink_to("../app.py")
    (here / "bin").mkdir()
    written("bin/in-path.py", f"#!{python} -u\n{REPORT}")
    monkeypatch.setenv("PATH", f"{here}/bin{os.pathsep}{os.environ['PATH']}")
    argv = [python if word == "python" else word for word in command]
    ordinary, *forked = ends(argv, said=b"a line\nanother\n")
    assert ordinary.status == 0, ordinary.err
    assert forked[0].out.replace("\r", "") == ordinary.out
    assert [(one.out, one.err, one.status) for one in forked] == [
        (ordinary.out, ordinary.err, 0) for _ in range(2)
    ]
    assert warnings() == []


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("sys.exit(7)", 7),
        ("sys.exit('words')", 1),
        ("sys.exit()", 0),
        ("raise ValueError('told')", 1),
        (
            "def f():\n  try:\n    1/0\n  except ZeroDivisionError as e:\n    raise OSError(2) from e\nf()",
            1,
        ),
        ("raise KeyboardInterrupt", -2),
        ("os.kill(os.getpid(), 9)", -9),
        ("os.kill(os.getpid(), 10)", -10),
        ("os.kill(os.getpid(), 2)", -2),
        ("os._exit(3)", 3),
        ("os.abort()", -6),
        ("sys.excepthook = lambda *e: print('own', *e[:2])\nraise ValueError('x')", 1),
        ("atexit.register(print, 'bye')\nprint('no end', end='')\nprint('e', file=sys.stderr)", 0),
        ("threading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()", 0),
        ("os.write(1, b'first ')\nprint('buffered')\nos._exit(0)", 0),
        ("import nothing_of_that_name", 1),
        ("warnings.warn('careful')", 0),
        ("warnings.warn('old', DeprecationWarning)", 0),
        ("def f(:", 1),
    ],
)
def test_a_child_ends_as_an_executed_one_does(here: Path, code: str, status: int) -> None:
    written("app.py", f"import atexit, os, sys, threading, time, warnings\n_ = 1\n{code}\n")
    ordinary, *forked = ends([sys.executable, "app.py"])
    assert ordinary.status == status
    for one in forked:
        assert (one.status, one.out, one.err) == (ordinary.status, ordinary.out, ordinary.err)


def test_one_template_has_the_children_of_a_shard_and_arguments_with_their_index_have_one_each(
    here: Path, warnings: Callable[[], list[str]]
) -> None:
    said = "os.environ['KCL_MLD_CHILD'], os.environ['KCL_MLD_CHILDREN'], *sys.argv[1:]"
    written("app.py", f"import os, sys\nprint(os.getppid(), {said})\n")

    async def scene(children: Children) -> None:
        argv, found = [sys.executable, "app.py"], []
        for index, count in (("0", "2"), ("1", "2"), ("1", "4")):
            env = SHARD | {"KCL_MLD_CHILD": index, "KCL_MLD_CHILDREN": count}
            end = await children.end(argv, env)
            template, *told = end.out.split()
            assert told == [index, count]
            found.append(template)
        assert len(set(found)) == 1
        for shard in ("shardId-7", "shardId-8"):
            env = SHARD | {"KCL_SHARD_ID": shard, "KCL_MLD_CHILD": "7", "KCL_MLD_CHILDREN": "8"}
            end = await children.end([*argv, "7"], env)
            template, *told = end.out.split()
            assert told == ["7", "8", "7"]
            found.append(template)
        assert found[3] == found[4] != found[0]

    play(scene)
    assert warnings() == []


def test_no_child_begins_where_another_one_is(
    here: Path, warnings: Callable[[], list[str]]
) -> None:
    written(
        "app.py",
        "import random, os, multiprocessing\nimport numpy as np\n"
        "print(random.random(), np.random.rand(), multiprocessing.current_process().authkey.hex(),"
        " os.environ['KCL_SHARD_ID'], os.environ.get('KCL_LEASE_KEY'), sep='|')\n",
    )

    async def scene(children: Children) -> None:
        said = []
        for number in range(3):
            env = {"KCL_SHARD_ID": f"shardId-{number}"}
            end = await children.end([sys.executable, "app.py"], env)
            said.append(end.out.strip().split("|"))
        first, second, keys, shards, leases = map(set, zip(*said, strict=True))
        assert [len(one) for one in (first, second, keys)] == [3, 3, 3]
        assert shards == {"shardId-0", "shardId-1", "shardId-2"}
        assert leases == {"None"}

    play(scene)
    assert warnings() == []


@pytest.mark.parametrize("version", ["1", "2", "3"])
@pytest.mark.parametrize("library", ["shim", "real"])
def test_a_kclpy_program_lives_through_a_lease(
    version: str, library: str, warnings: Callable[[], list[str]]
) -> None:
    env = dict(SHARD)
    if library == "real":
        folder = kclpy()
        if folder is None:
            pytest.skip("amazon_kclpy cannot be fetched here")
        env["PYTHONPATH"] = str(folder)

    async def scene(children: Children) -> None:
        lives = [live([*PYTHON, version, "checkpoint"], env, children.launcher) for _ in range(3)]
        for saw in await asyncio.gather(*lives):
            assert len([line for line in saw if " key-" in line]) == 3003
            assert "refused ShutdownException 'ShutdownException'" in saw
            assert any("ZOMBIE" in line or "lease_lost" in line for line in saw[-2:])

    play(scene)
    assert warnings() == []


LIBRARIES = {
    "pandas": (
        (
            "import pandas as pd\nimport numpy as np\nimport pyarrow as pa\n"
            "import pyarrow.compute as pc\nimport pyarrow.parquet as pq\n"
            "a = np.ones((600, 600))\nassert (a @ a).sum() == 600 ** 3\n"
            "t = pa.table({'k': [1, 2] * 100_000, 'v': range(200_000)})\n"
            "assert pc.sum(t['v']).as_py() == 19999900000\n"
            "assert t.group_by('k', use_threads=True).aggregate([('v', 'sum')]).num_rows == 2\n"
            "pq.write_table(t, f'{__import__(\"os\").getpid()}.parquet')\n"
            "d = pd.read_parquet(f'{__import__(\"os\").getpid()}.parquet')\n"
            "print(d.groupby('k').v.sum().sum())\n"
        ),
        "19999900000",
    ),
    "boto3": (
        (
            "import boto3\nc = boto3.client('kinesis', region_name='us-east-1')\n"
            "print(c.meta.service_model.service_name)\n"
        ),
        "kinesis",
    ),
    "logging": (
        (
            "import logging, logging.config, sys\n"
            "logging.config.dictConfig({'version': 1, 'handlers': {'h': {'class': "
            "'logging.StreamHandler', 'stream': 'ext://sys.stdout'}}, 'root': {'handlers': ['h'], "
            "'level': 'INFO'}})\nlogging.getLogger('x').info('told')\n"
        ),
        "told",
    ),
    "pool": (
        (
            "import multiprocessing\ndef double(x):\n    return 2 * x\n"
            "if __name__ == '__main__':\n"
            "    for kind in ('fork', 'spawn'):\n"
            "        with multiprocessing.get_context(kind).Pool(2) as pool:\n"
            "            print(sum(pool.map(double, range(10))))\n"
        ),
        "90\n90",
    ),
    "futures": (
        (
            "from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor\n"
            "with ThreadPoolExecutor(2) as a, ProcessPoolExecutor(2) as b:\n"
            "    print(sum(a.map(abs, range(5))), sum(b.map(abs, range(5))))\n"
        ),
        "10 10",
    ),
    "asyncio": (
        (
            "import asyncio\nasync def main():\n"
            "    p = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)\n"
            "    print((await p.communicate())[0].decode().strip(), await p.wait())\n"
            "asyncio.run(main())\n"
        ),
        "hi 0",
    ),
    "pickle": (
        "import pickle\nclass Own:\n    pass\nprint(type(pickle.loads(pickle.dumps(Own()))) is Own)\n",
        "True",
    ),
}


@pytest.mark.parametrize("kind", LIBRARIES)
def test_libraries_work_in_children(
    here: Path, kind: str, warnings: Callable[[], list[str]]
) -> None:
    code, expected = LIBRARIES[kind]
    written("app.py", code)

    async def scene(children: Children) -> None:
        argv = [sys.executable, "app.py"]
        for end in await asyncio.gather(*(children.end(argv) for _ in range(3))):
            assert (end.out.strip(), end.status) == (expected, 0), end.err

    play(scene)
    assert warnings() == []


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("import os\nX = os.environ.get('KCL_SHARD_ID')", "its imports read KCL_SHARD_ID, which"),
        ("import os\nX = dict(os.environ)", "its imports read the whole environment, which"),
        (
            (
                "import threading, time\n"
                "threading.Thread(target=time.sleep, args=(99,), daemon=True, name='poll').start()"
            ),
            "its imports start threads: poll",
        ),
        ("import socket\nX = socket.socket()", "its imports leave a socket or an event loop open"),
        ("import subprocess\nX = subprocess.Popen(['sleep', '9'])", "its imports start processes"),
        ("import grpc", "it imports grpc, which does not work after a fork"),
        ("import polars", "its imports start native threads of a library that is not known"),
        ("raise ValueError('no')", "ValueError: no"),
        ("raise SystemExit(4)", "SystemExit: 4"),
        (
            "import os, sys\nprint('gone', file=sys.stderr, flush=True)\nos._exit(5)",
            "status 5): gone",
        ),
    ],
)
def test_a_program_whose_imports_keep_it_from_a_fork_starts_as_usual_and_it_is_said_once(
    here: Path, module: str, why: str, warnings: Callable[[], list[str]]
) -> None:
    written("own.py", module)
    written("app.py", "import os\nprint(os.getppid())\nos._exit(0)\nimport own\n")
    written("app2.py", "import own, os\nprint(os.getppid())\nos._exit(0)\n")

    async def scene(children: Children) -> None:
        # Not an import at the top of the script, so it is executed by nobody.
        end = await children.end([sys.executable, "app.py"])
        assert int(end.out or 0) != os.getpid()
        for _ in range(2):
            end = await children.end([sys.executable, "app2.py"])
            assert end.out in {f"{os.getpid()}\n", ""}

    play(scene)
    (told,) = warnings()
    assert told.startswith(f"childPrefork: {sys.executable} app2.py starts as usual: ")
    assert why in told


@pytest.mark.parametrize("change", ["sys.stdout = None", "sys.stderr = 7", "sys.stdout.close()"])
def test_imports_may_take_the_outputs_away(
    here: Path, change: str, warnings: Callable[[], list[str]]
) -> None:
    written("own.py", f"import sys\n{change}\n")
    written("app.py", "import os, own\nos.write(1, b'%d' % os.getppid())\nos._exit(3)\n")
    ordinary, *forked = ends([sys.executable, "app.py"])
    assert (ordinary.out, ordinary.status) == (str(os.getpid()), 3)
    assert len({one.out for one in forked} | {ordinary.out}) == 2  # they have another parent
    assert {one.status for one in forked} == {3}
    assert warnings() == []


def test_other_programs_start_as_usual(here: Path, warnings: Callable[[], list[str]]) -> None:
    written("app.py", "import os\nprint(os.getppid())\n")
    written("start.sh", f"#!/bin/sh\nexec {sys.executable} app.py\n")

    async def scene(children: Children) -> None:
        for argv in (
            ["./start.sh"],
            [sys.executable, "-m", "app"],
            ["env", sys.executable, "app.py"],
        ):
            for _ in range(2):
                end = await children.end(argv)
                assert (end.out, end.status) == (f"{os.getpid()}\n", 0)
        with pytest.raises(OSError, match="no-such"):
            await children.end(["./no-such"])

    play(scene)
    assert [text.partition("usual: ")[2] for text in warnings()] == [
        "./start.sh is no Python script",
        f"{sys.executable} -m starts no script, or not as usual",
        "env is no Python script",
        "./no-such is not found",
    ]


def test_preloaded_modules_are_there_and_prints_of_imports_are_logged(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    written("own.py", "import os\nprint('loaded by', os.getpid())\nPID = os.getpid()\n")
    written("app.py", "import os\nos.getpid()\nimport own\nprint(own.PID, os.getppid())\n")

    async def scene(children: Children) -> None:
        end = await children.end([sys.executable, "app.py"])
        first, second = end.out.split()
        assert first == second != str(os.getpid())

    play(scene, PreforkLauncher(preload=["own"]))
    assert any("template of app.py: loaded by" in r.getMessage() for r in caplog.records)


SLEEPS = (
    "import os, sys, time\nprint(os.getppid(), flush=True)\nsys.stdin.readline()\nsys.exit(6)\n"
)


async def line(child: ChildProcess) -> str:
    data = b""
    while not data.endswith(b"\n"):
        more = await child.read()
        assert more
        data += more
    return data.decode().strip()


async def until(fact: Callable[[], Any]) -> None:
    while not fact():  # noqa: ASYNC110 - other processes make it true
        await asyncio.sleep(0.01)


class Keeper:
    """Notes the sessions."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def watch(self, session_id: int) -> None:
        self.known.add(session_id)

    def forget(self, session_id: int) -> None:
        self.known.discard(session_id)


def test_children_go_on_without_their_template_and_another_one_follows(
    here: Path, warnings: Callable[[], list[str]]
) -> None:
    written("app.py", SLEEPS)
    argv = [sys.executable, "app.py"]
    keeper = Keeper()

    async def scene(children: Children) -> None:
        first = [await children.start(argv) for _ in range(2)]
        template = {int(await line(child)) for child in first}
        assert len(template) == 1
        (pid,) = template
        assert keeper.known == {pid, *(child.pid for child in first)}
        os.kill(pid, signal.SIGKILL)
        await until(warnings)
        third = await children.start(argv)
        assert int(await line(third)) not in {pid, os.getpid()}
        assert pid not in keeper.known
        assert all(alive(child.pid) for child in first)
        await first[0].write(b"end\n")
        assert await first[0].wait() == UNKNOWN_STATUS
        first[1].kill()
        assert await first[1].wait() == UNKNOWN_STATUS
        await third.write(b"end\n")
        assert await third.wait() == 6
        await until(lambda: len(keeper.known) == 1)

    play(scene, PreforkLauncher(keeper))
    (told,) = warnings()
    assert "of app.py ended (status -9): its 2 children go on; another one takes its place" in told


def test_a_template_that_ends_all_the_time_is_given_up_for_a_while(
    here: Path, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefork, "_SHORT_LIFE_S", 1000.0)
    written("app.py", SLEEPS)
    argv = [sys.executable, "app.py"]

    async def scene(children: Children) -> None:
        for count in range(3):
            child = await children.start(argv)
            os.kill(int(await line(child)), signal.SIGKILL)
            await until(lambda count=count: len(warnings()) > count)  # type: ignore[misc]
        child = await children.start(argv)
        assert int(await line(child)) == os.getpid()

    play(scene)
    assert warnings()[-2].endswith("another one takes its place in 60 s")
    assert warnings()[-1].endswith("its template ended too often")


def test_a_killed_child_is_noticed_at_once_with_what_it_left(here: Path) -> None:
    written(
        "app.py",
        "import subprocess, sys\np = subprocess.Popen(['sleep', '99'])\n"
        "print(p.pid, flush=True)\nsys.stdin.readline()\n",
    )

    async def scene(children: Children) -> None:
        child = await children.start([sys.executable, "app.py"])
        left = int(await line(child))
        os.kill(child.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            assert await child.wait() == -9
        assert not alive(child.pid)
        await until(lambda: not alive(left))
        again = await children.start([sys.executable, "app.py"])
        left = int(await line(again))
        again.terminate()
        assert await again.wait() == -15
        await until(lambda: not alive(left))

    play(scene)


def test_few_children_end_at_a_time_and_a_slow_one_makes_room(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefork, "ENDS", 2)
    monkeypatch.setattr(prefork, "END_S", 600.0)
    written("app.py", "import sys\nsys.stdin.readline()\nsys.stdin.readline()\n")

    async def scene(children: Children) -> None:
        argv = [sys.executable, "app.py"]
        slow, other, third, fourth = [await children.start(argv) for _ in range(4)]
        for stopped in (slow, other):
            os.kill(stopped.pid, signal.SIGSTOP)
            await stopped.close_stdin()
        closing = asyncio.ensure_future(third.close_stdin())
        done, _ = await asyncio.wait([closing], timeout=0.3)
        assert not done
        os.kill(slow.pid, signal.SIGCONT)
        assert await slow.wait() == 0
        await closing
        assert await third.wait() == 0
        monkeypatch.setattr(prefork, "END_S", 0.1)
        await fourth.close_stdin()
        assert await fourth.wait() == 0
        stuck = [await children.start(argv) for _ in range(4)]
        for child in stuck:
            os.kill(child.pid, signal.SIGSTOP)
            await child.close_stdin()  # the last of them only because the first ones make room
            await child.close_stdin()

    play(scene)


def test_many_children_may_be_asked_for_at_once(
    here: Path, warnings: Callable[[], list[str]]
) -> None:
    written("app.py", "import os\nprint(os.environ['KCL_SHARD_ID'])\n")

    async def scene(children: Children) -> None:
        names = [f"shardId-{number}" for number in range(150)]
        argv = [sys.executable, "app.py"]
        lives = (children.end(argv, {"KCL_SHARD_ID": name}) for name in names)
        assert [one.out.strip() for one in await asyncio.gather(*lives)] == names

    play(scene)
    assert warnings() == []


def test_a_template_that_is_stuck_keeps_no_shard_from_starting(
    here: Path, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    written("app.py", SLEEPS)
    written("slow.py", "import never\n" + SLEEPS)
    written("never.py", f"import time, os\nif os.getppid() == {os.getpid()}: time.sleep(99)\n")
    argv = [sys.executable, "app.py"]

    async def scene(children: Children) -> None:
        child = await children.start(argv)
        os.kill(int(await line(child)), signal.SIGSTOP)
        monkeypatch.setattr(prefork, "ANSWER_S", 0.3)
        child = await children.start(argv)
        assert int(await line(child)) == os.getpid()
        monkeypatch.setattr(prefork, "READY_S", 0.5)
        waiting = asyncio.create_task(children.start([sys.executable, "slow.py"]))
        await asyncio.sleep(1)
        written("never.py", "")
        await waiting

    play(scene)
    assert any("its template has not answered for 0 s" in text for text in warnings())
    assert any("its imports take more than 0 s" in text for text in warnings())


def test_a_child_whose_start_was_given_up_is_ended(here: Path) -> None:
    written("app.py", "import time\ntime.sleep(99)\n")
    argv = [sys.executable, "app.py"]
    keeper = Keeper()

    async def scene(children: Children) -> None:
        await children.start(argv)
        known = set(keeper.known)
        starting = asyncio.ensure_future(children.start(argv))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await children.start(argv)
        assert len(keeper.known) == len(known) + 1
        template = parent(children.running[0].pid)

        def living() -> int:
            pids = [int(p.name) for p in Path("/proc").glob("[0-9]*")]
            return sum(parent(pid) == template and alive(pid) for pid in pids)

        await until(lambda: living() == 2)

    play(scene, PreforkLauncher(keeper))


def test_an_interpreter_that_has_no_templates_is_told(
    here: Path, warnings: Callable[[], list[str]]
) -> None:
    written("python2", "#!/bin/sh\necho one\necho no modern Python >&2\nexit 1\n")
    written("app.py", "#!./python2\n")

    async def scene(children: Children) -> None:
        for _ in range(2):
            end = await children.end(["./app.py"])
            assert (end.out, end.err, end.status) == ("one\n", ["no modern Python"], 1)

    play(scene)
    (told,) = warnings()
    assert told.endswith("usual: its template ended (status 1): no modern Python")


def test_children_that_no_daemon_looked_after_end_with_it(here: Path) -> None:
    written("app.py", "import time\ntime.sleep(99)\n")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, template_main.__file__, str(theirs.fileno()), "app.py"]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as template:
        theirs.close()
        ours.send(json.dumps({"preload": [], "variables": [], "name": None}).encode())
        assert json.loads(ours.recv(999)) == {"why": None}
        pids = []
        with open(os.devnull, "r+b") as null:
            for count in (3, 3, 1):
                socket.send_fds(ours, [b'{"variables": {}}'], [null.fileno()] * count)
                answer, pidfds, _, _ = socket.recv_fds(ours, 999, 1)
                pids += [json.loads(answer).get("pid")]
                for pidfd in pidfds:
                    os.close(pidfd)
        first, second, refused = pids
        assert refused is None
        ours.send(json.dumps({"seen": second}).encode())
        ours.close()
        assert template.wait(PATIENCE_S) == 0
    try:
        wait_until(lambda: not alive(first), "it is killed")
        assert alive(second)
    finally:
        os.killpg(second, signal.SIGKILL)
