"""README's quick start, run as it stands there."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from tests.markdown_pages import page

pytestmark = pytest.mark.process

LONGEST_S = 120.0


def quick_start():
    """The commands of README's quick start."""
    fences = [fence for fence in page("README.md").fences if "kcl-mld local" in fence.text]
    assert len(fences) == 1, "README shows one quick start"
    return fences[0].text


def test_the_quick_start_of_readme_prints_its_record_and_ends_with_ctrl_c(tmp_path):
    bin_folder = pathlib.Path(sys.executable).parent
    env = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    # Not in the background of a shell: such a process would ignore SIGINT.
    shell = subprocess.Popen(
        ["bash", "-ec", quick_start()],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    watchdog = threading.Timer(LONGEST_S, os.killpg, (shell.pid, signal.SIGKILL))
    watchdog.start()
    seen = []
    try:
        for line in shell.stdout:
            seen.append(line)
            if "stderr: en Hello" in line:
                os.killpg(shell.pid, signal.SIGINT)
                break
        seen += shell.stdout
        shell.wait()
    finally:
        watchdog.cancel()
        shell.stdout.close()
    log = "".join(seen)
    assert "stderr: en Hello" in log, log
    assert "Stopped: every child was told and every lease released" in log, log
