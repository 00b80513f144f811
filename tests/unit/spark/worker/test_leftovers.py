"""A process that ends ends its session, if it is its own."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

PROGRAM = """
import signal, subprocess, sys
from kcl_mld.spark.worker.worker_host import end_leftovers

def child(code, **more):
    return subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, **more)

stubborn = "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN);" \\
    "print('on', flush=True); time.sleep(60)"
ours = child(stubborn, process_group=0)
others = child(stubborn, start_new_session=True)
ours.stdout.readline(), others.stdout.readline()
end_leftovers(5.0)
print(ours.poll() if sys.argv[1] == "not" else ours.wait(60), others.poll())
ours.kill(), others.kill()
"""


@pytest.mark.parametrize(("leads", "ends"), [("leads", "-9 None\n"), ("not", "None None\n")])
def test_all_of_the_own_session_is_killed_and_nothing_of_anothers(leads, ends):
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, leads],
        check=True,
        capture_output=True,
        text=True,
        start_new_session=leads == "leads",
        process_group=0 if leads == "not" else None,
        timeout=120,
    )
    assert found.stdout == ends
