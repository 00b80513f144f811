"""The example of docs/schemas.md, run as it stands there."""

from __future__ import annotations

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


def test_the_example_of_the_page_prints_the_decoded_record(tmp_path: pathlib.Path) -> None:
    (fence,) = [one for one in page("docs/schemas.md").fences if "kcl-mld local" in one.text]
    bin_folder = pathlib.Path(sys.executable).parent
    env = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    shell = subprocess.Popen(
        ["bash", "-ec", fence.text],
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
    assert shell.stdout is not None
    seen = []
    try:
        for line in shell.stdout:
            seen.append(line)
            if "written as" in line:
                os.killpg(shell.pid, signal.SIGTERM)
                break
        seen += shell.stdout
        shell.wait()
    finally:
        watchdog.cancel()
        shell.stdout.close()
    log = "".join(seen)
    assert 'orders AVRO {"id":7}' in log.replace('\\"', '"'), log  # in a terminal it is no JSON
    assert "written as {" in log, log
