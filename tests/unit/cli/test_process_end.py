"""The end of a process whose other threads go on, seen from outside."""

import os
import subprocess
import sys

import pytest


def ended(code, before="", stdout=subprocess.PIPE):
    """Exit code, stdout and stderr of a process that runs the lines before and ends with a code."""
    text = f"import sys\nfrom kcl_mld.cli import end_process\n{before}\nend_process({code})\n"
    done = subprocess.run(
        [sys.executable, "-c", text],
        check=False,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    return done.returncode, done.stdout, done.stderr


#: As OpenSSL, but it always fails.
LIBRARY_THAT_CRASHES_AT_THE_END = """
import ctypes
libc = ctypes.CDLL(None)
assert libc.on_exit(libc.abort, None) == 0
"""

#: Would hold up an interpreter that waits for it.
ENDLESS = """
import threading, time
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
"""


@pytest.mark.parametrize("code", [0, 4, 143])
@pytest.mark.parametrize("before", ["", ENDLESS])
def test_the_code_is_what_was_decided(code, before):
    assert ended(code, before) == (code, "", "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="on_exit is of glibc and musl")
def test_ends_of_native_libraries_are_not_run():
    before = LIBRARY_THAT_CRASHES_AT_THE_END
    assert ended(4, before) == (4, "", "")
    assert ended(4, f"{before}\nsys.exit(4)")[0] == -6  # what it would be otherwise


def test_what_is_written_and_registered_is_not_lost():
    before = """
import atexit, logging
atexit.register(print, "registered")
logging.lastResort.setLevel(0)
print("written", end=" ")
sys.stderr.write("unfinished")
"""
    assert ended(2, before) == (2, "written registered\n", "unfinished")


def test_a_failure_at_the_end_is_told_and_changes_no_code():
    code, _, err = ended(4, "import atexit\natexit.register(lambda: 1 / 0)")
    assert code == 4
    assert "ZeroDivisionError" in err


def test_output_that_finds_no_room_is_no_success():
    with open("/dev/full", "w") as full:
        code, _, err = ended(0, "print('lost')", full)
        assert (code, err) == (1, "kcl-mld: standard output: [Errno 28] No space left on device\n")
        assert ended(3, "print('lost')", full)[0] == 3


def test_a_reader_that_is_gone_is_told_by_the_code_alone():
    before = "import os\nr, w = os.pipe()\nos.close(r)\nos.dup2(w, 1)\nprint('lost')"
    assert ended(0, before) == (141, "", "")


def test_an_interpreter_without_the_private_names_closes_log_handlers(tmp_path):
    before = f"""
import atexit, logging, threading
del atexit._run_exitfuncs, threading._shutdown
logging.getLogger().addHandler(logging.FileHandler({str(tmp_path / "log")!r}))
logging.getLogger().handlers[0].close = lambda: print("closed")
"""
    assert ended(4, before) == (4, "closed\n", "")


def test_threads_of_others_end_as_at_the_end_of_an_interpreter(tmp_path):
    before = f"""
import logging, threading, time
from concurrent.futures import ThreadPoolExecutor
first = threading.Event()
class Handler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.file = open({str(tmp_path / "log")!r}, "w")
        self.pool = ThreadPoolExecutor(1)
    def emit(self, record):
        self.file.write(record.getMessage())
        self.file.flush()
        self.pool.submit(lambda: (time.sleep(0.2), print("in the pool"), first.set()))
logging.getLogger().addHandler(Handler())
logging.error("kept")
threading.Thread(target=lambda: (first.wait(), time.sleep(0.1), print("in a thread"))).start()
"""
    assert ended(4, before) == (4, "in the pool\nin a thread\n", "")
    assert (tmp_path / "log").read_text() == "kept"


def test_standard_error_without_a_descriptor_keeps_no_command_from_its_work():
    text = "import io, sys; sys.stderr = io.StringIO()\nfrom kcl_mld.cli import main; main(['--version'])"
    done = subprocess.run(
        [sys.executable, "-c", text], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kcl-mld")
