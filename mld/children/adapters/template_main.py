"""A template of children: imports what a script imports, then forks one child per shard.

Started by :mod:`kcl_mld.children.adapters.prefork` as ``python [options] template_main.py FD script
[arguments]``, with the interpreter, the options, the environment and the working directory of an
ordinary child, but without the variables of a shard. FD is a socket of whole messages (JSON):

* from the daemon: first ``{"preload": […], "variables": […], "name": …}``; then ``{"variables":
  {…}}`` with three descriptors for each child, and ``{"seen": pid}`` when the daemon watches it;
* to the daemon: ``{"why": …}``, null when all is ready; ``{"pid": …}`` with a pidfd for each child,
  or ``{"failed": …}``; ``{"pid": …, "status": …}`` when a child was reaped.

The script runs only in the children, each of which returns from :func:`main` and executes it once.
The end of the socket ends the template, not its children. Standard library only, nothing of
``kcl_mld``: the interpreter is the user's. Python 3.9 or later, Linux.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import contextlib
import errno
import faulthandler
import gc
import importlib.machinery
import json
import os
import select
import signal
import socket
import sys
import threading
import types
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

#: Libraries whose native threads are known to restart after a fork; see tests/process.
FORK_TESTED = ("numpy", "pandas", "pyarrow")
#: Libraries that do not work after a fork, whether or not they were used before.
UNFIT = ("grpc",)
#: Functions that change a list, a dict, the working directory or other modules.
CHANGES = frozenset(
    [
        "append",
        "chdir",
        "clear",
        "extend",
        "insert",
        "load_dotenv",
        "patch",
        "patch_all",
        "pop",
        "putenv",
        "remove",
        "setdefault",
        "update",
    ]
)
#: Stands for an unknown exit status.
UNKNOWN_STATUS = 255
_MESSAGE_BYTES = 2**16
#: Supports pidfds and descriptors sent over sockets.
_OLDEST = (3, 9)


def leading_imports(tree: ast.Module) -> list[ast.stmt]:
    """The import statements at the top level of a script.

    They end at the first statement that may change the effect of an import: a call outside a
    function whose result is not used, a change of ``sys.path`` or ``os.environ``, or a call by one
    of the names in :data:`CHANGES`. The rest is for the children.
    """
    found: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            found.append(statement)
        elif isinstance(statement, ast.ImportFrom):
            if statement.level == 0 and statement.module != "__future__":
                found.append(statement)
        elif any(map(_acts, _executed(statement))):
            break
    return found


def _executed(statement: ast.stmt) -> Iterator[ast.AST]:
    if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield statement
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.stmt):
                yield from _executed(child)
            elif not isinstance(child, ast.expr):  # a handler, or a case
                for one in getattr(child, "body", ()):
                    yield from _executed(one)


def _acts(statement: ast.AST) -> bool:
    if isinstance(statement, ast.Assign):
        is_plain = all(isinstance(target, ast.Name) for target in statement.targets)
        return not is_plain or _changes(statement.value)
    if isinstance(statement, ast.AnnAssign):
        return not isinstance(statement.target, ast.Name) or _changes(statement.value)
    if isinstance(statement, (ast.If, ast.Assert)):
        return _changes(statement.test)
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)
    return isinstance(statement, (ast.AugAssign, ast.Delete, ast.With, ast.For, ast.While))


def _changes(value: ast.expr | None) -> bool:
    calls = [] if value is None else [one for one in ast.walk(value) if isinstance(one, ast.Call)]
    names = {getattr(one.func, "attr", getattr(one.func, "id", "")) for one in calls}
    return not names.isdisjoint(CHANGES)


class Environment:
    """Records which variables are read while it is active, ``*`` for all of them.

    Args:
        names: the variables to record.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {*names, "*"}
        self._usual = type(os.environ)
        self.asked: set[str] = set()

    def __enter__(self) -> Environment:  # noqa: PYI034 - Self is not in Python 3.10
        noted = self.asked

        class Recording(self._usual):  # type: ignore[name-defined,misc]
            def __getitem__(self, key: Any) -> Any:
                noted.add(os.fsdecode(key))
                return super().__getitem__(key)

            def __iter__(self) -> Iterator[Any]:
                noted.add("*")
                return super().__iter__()  # type: ignore[no-any-return]

        self._become(Recording)
        return self

    def __exit__(self, *_: object) -> None:
        self._become(self._usual)
        self.asked &= self._names

    @staticmethod
    def _become(kind: type) -> None:
        # The objects stay, because modules already hold references to them.
        os.environ.__class__ = kind
        os.environb.__class__ = kind


class CountedThreads:
    """Counts the native threads that :data:`FORK_TESTED` start while they are imported."""

    def __init__(self) -> None:
        self.count = 0
        self._usual: Callable[..., Any] = builtins.__import__
        self._is_inside = False

    def __enter__(self) -> CountedThreads:  # noqa: PYI034
        builtins.__import__ = self._import
        return self

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._usual

    def _import(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._is_inside or name.partition(".")[0] not in FORK_TESTED:
            return self._usual(name, *args, **kwargs)
        before = len(native_threads())
        self._is_inside = True
        try:
            return self._usual(name, *args, **kwargs)
        finally:
            self._is_inside = False
            self.count += len(native_threads()) - before


def native_threads() -> list[str]:
    """Names of the threads beside the main one, as the kernel lists them; includes Python's."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != os.getpid():
            try:
                with open(f"/proc/self/task/{thread}/comm") as comm:
                    names.append(comm.read().strip())
            except OSError:
                continue  # it ended meanwhile
    return names


def obstacle(control: int, tested_threads: int) -> str | None:
    """What prevents this process from being forked, or None."""
    threads = [one.name for one in threading.enumerate() if one is not threading.main_thread()]
    if threads:
        return "its imports start threads: " + ", ".join(threads)
    unfit = [name for name in UNFIT if name in sys.modules]
    if unfit:
        return f"it imports {unfit[0]}, which does not work after a fork"
    native = native_threads()
    if len(native) > tested_threads:
        return (
            "its imports start native threads of a library that is not known to work after a "
            "fork: " + ", ".join(sorted(set(native)))
        )
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        pass  # there is none
    else:
        return "its imports start processes"
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # the thread of the listing
        if int(number) != control and target.startswith(("socket:", "anon_inode:")):
            return f"its imports leave a socket or an event loop open: {target}"
    return None


def flush_outputs() -> None:
    """Flush printed output; an import may have closed or replaced the streams."""
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            output.flush()


def fresh_main(script: str) -> types.ModuleType:
    """A ``__main__`` module as the interpreter creates it for a script, in ``sys.modules``."""
    file = os.path.join(os.getcwd(), script)
    module = types.ModuleType("__main__")
    vars(module).update(
        __builtins__=builtins,
        __cached__=None,
        __file__=file,
        __loader__=importlib.machinery.SourceFileLoader("__main__", file),
    )
    sys.modules["__main__"] = module
    return module


def prepare(file: str, order: dict[str, Any], control: int) -> tuple[types.CodeType, str | None]:
    """Import what the script imports; returns its code, and what prevents a fork."""
    os.close(os.pidfd_open(os.getpid()))
    with open(file, "rb") as script:
        source = script.read()
    code = compile(source, file, "exec", dont_inherit=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compile has reported them
        statements = leading_imports(ast.parse(source, file))
    imports = compile(ast.Module(statements, []), file, "exec", dont_inherit=True)
    with Environment(order["variables"]) as environment, CountedThreads() as tested:
        for name in order["preload"]:
            __import__(name)
        exec(imports, {"__name__": "__main__", "__file__": file})  # noqa: S102 - the user's imports
    if environment.asked:
        asked = ", ".join(sorted(environment.asked)).replace("*", "the whole environment")
        return code, f"its imports read {asked}, which differs by shard"
    return code, obstacle(control, tested.count)


def tell(control: socket.socket, message: dict[str, Any], *descriptors: int) -> None:
    """Send to the daemon.

    Raises:
        OSError: the daemon is gone.
    """
    socket.send_fds(control, [json.dumps(message).encode()], descriptors)


class ForkedChildren:
    """Forks children, and reports how they ended.

    Args:
        name: a child's process name in ``/proc``; None = that of the interpreter.
    """

    def __init__(self, control: socket.socket, name: str | None) -> None:
        self._control = control
        self._name = name
        self._pids: dict[int, int] = {}  # by pidfd
        self._unseen: set[int] = set()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> None:
        """Returns in each child, and only there; the end of the daemon ends the template."""
        try:
            while True:
                for ready, _ in self._poll.poll():
                    if ready in self._pids:
                        self._reap(ready)
                    elif self._obey():
                        return
        except OSError:
            for pid in self._unseen:  # the daemon did not confirm them
                os.killpg(pid, signal.SIGKILL)
            os._exit(0)

    def _obey(self) -> bool:
        """Process one message; True in the child that it requested."""
        data, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 3)
        if not data:
            raise ConnectionError
        message = json.loads(data)
        if "seen" in message:
            self._unseen.discard(message["seen"])
            return False
        try:
            forked = self._fork(message["variables"], descriptors)
        except OSError as error:
            forked = {"failed": str(error)}, ()
        for descriptor in descriptors:
            os.close(descriptor)
        if forked is None:
            return True
        answer, pidfds = forked
        tell(self._control, answer, *pidfds)
        return False

    def _fork(
        self, variables: dict[str, str], descriptors: list[int]
    ) -> tuple[dict[str, Any], tuple[int, ...]] | None:
        """The answer and its descriptors; None in the child."""
        if len(descriptors) != len((sys.stdin, sys.stdout, sys.stderr)):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        flush_outputs()
        leads, led = os.pipe()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # Python 3.12 warns of threads; obstacle() checked for them
                pid = os.fork()
        except OSError:
            os.close(leads)
            os.close(led)
            raise
        if not pid:
            try:
                os.close(leads)
                self._become_child(variables, descriptors)
                os.close(led)
            except BaseException:  # noqa: BLE001 - there must not be two templates
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            return None
        os.close(led)
        os.read(leads, 1)  # until it leads its session: the daemon signals the whole group
        os.close(leads)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._pids[pidfd] = pid
        self._unseen.add(pid)
        self._poll.register(pidfd, select.POLLIN)
        return {"pid": pid}, (pidfd,)

    def _become_child(self, variables: dict[str, str], descriptors: list[int]) -> None:
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        for pidfd in self._pids:
            os.close(pidfd)
        self._control.close()
        for name, value in variables.items():
            os.environb[name.encode("latin-1")] = value.encode("latin-1")
        if self._name is not None:
            with open("/proc/self/comm", "wb") as comm:
                comm.write(os.fsencode(self._name))
        # A child that hangs gets it: the daemon's log shows where.
        faulthandler.register(signal.SIGTERM, file=2, chain=True)
        os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))
        if "numpy.random" in sys.modules:  # Python reseeds its own by itself
            sys.modules["numpy.random"].seed()
        if "multiprocessing" in sys.modules:
            sys.modules["multiprocessing"].current_process().authkey = os.urandom(32)

    def _reap(self, pidfd: int) -> None:
        pid = self._pids.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        self._unseen.discard(pid)
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:  # an import made the kernel reap children
            status = UNKNOWN_STATUS
        tell(self._control, {"pid": pid, "status": status})


_interrupted: list[bool] = []


def _end_as_interrupted() -> None:
    """Runs last at exit: like Python, die of SIGINT after a KeyboardInterrupt."""
    if _interrupted:
        flush_outputs()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def main() -> tuple[types.CodeType, types.ModuleType]:
    """Become the template; returns in each child, with what it has to execute."""
    if sys.version_info < _OLDEST:
        sys.exit("a template needs Python 3.9 or later")
    atexit.register(_end_as_interrupted)  # the first, so that it is called last
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    order = json.loads(control.recv(_MESSAGE_BYTES))
    script = sys.argv[2]
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    if hasattr(sys, "orig_argv"):
        own = sys.orig_argv.index(sys.argv[0])
        del sys.orig_argv[own : own + 2]
    del sys.argv[:2]
    module = fresh_main(script)
    try:
        code, why = prepare(str(module.__file__), order, control.fileno())
    except BaseException as error:  # noqa: BLE001 - whatever an import raises
        code, why = compile("", script, "exec"), f"{type(error).__name__}: {error}"
    gc.collect()
    gc.freeze()
    tell(control, {"why": why})
    if why is not None:
        flush_outputs()
        os._exit(0)
    ForkedChildren(control, order["name"]).serve()
    return code, module


def run(code: types.CodeType, module: types.ModuleType) -> None:
    """Execute the script; exits as the interpreter does, with no frame of ours in the traceback."""
    try:
        exec(code, vars(module))  # noqa: S102 - the user's own program
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001
        if isinstance(error, KeyboardInterrupt):
            _interrupted.append(True)
        frames = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        sys.exit(1)


if __name__ == "__main__":
    run(*main())
