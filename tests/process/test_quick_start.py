"""The examples of the pages, run as they stand there."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from tests.markdown_pages import page

pytestmark = pytest.mark.process

ROOT = pathlib.Path(__file__).parents[2]
LONGEST_S = 120.0


def quick_start(name):
    """The commands of a page's example."""
    fences = [fence for fence in page(name).fences if "kcl-mld local" in fence.text]
    assert len(fences) == 1, f"{name} shows one example"
    return fences[0].text


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("README.md", {"stderr: en Hello"}),
        (
            "docs/multi-stream.md",
            {
                "stderr: orders [] en",
                "stderr: clicks ['counts', 'clicks'] en",
                "stderr: views [] en",
            },
        ),
    ],
)
def test_the_example_of_a_page_prints_its_records_and_ends_with_ctrl_c(name, printed, tmp_path):
    bin_folder = pathlib.Path(sys.executable).parent
    env = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    (tmp_path / "sample_apps").symlink_to(ROOT / "sample_apps")
    # Not in the background of a shell: such a process would ignore SIGINT.
    shell = subprocess.Popen(
        ["bash", "-ec", quick_start(name)],
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
    seen, missing = [], set(printed)
    try:
        for line in shell.stdout:
            seen.append(line)
            missing -= {text for text in missing if text in line}
            if not missing:
                os.killpg(shell.pid, signal.SIGINT)
                break
        seen += shell.stdout
        shell.wait()
    finally:
        watchdog.cancel()
        shell.stdout.close()
    log = "".join(seen)
    assert not missing, log
    assert "Stopped: every child was told and every lease released" in log, log
