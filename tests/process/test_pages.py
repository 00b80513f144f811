"""Every command of the pages, typed as it stands there by the console scripts of this run's wheel.

``tests/page_commands.py`` says how a page marks what cannot be run, or not at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from kcl_mld.cli import COMMANDS
from kcl_mld.spark.stub import UPKEEP, WARM
from tests.checkout import copy_checkout, run
from tests.kclpy_cache import kclpy
from tests.markdown_pages import PAGES
from tests.page_commands import Block, blocks_of

pytestmark = pytest.mark.process

LONGEST_S = 900.0
#: A server of Spark that lives for a few jobs costs half as much without the second compiler.
CHEAP_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Printed around each block, so that outputs are told apart. No program prints it.
_MARK = "\x1e"
#: Pages name ports, so two runs of the tests on one machine can't type at once.
_PORT = re.compile(r"127\.0\.0\.1:(\d+)")
#: Runs a command on the terminal that is its standard input: Ctrl-C is for the foreground only.
_ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A shell with job control on a terminal; what it and its programs print comes by a pipe."""

    def __init__(self, script, folder, environment):
        self._master, slave = os.openpty()
        self._shell = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, "bash", "-emc", f"exec 2>&1\n{script}"],
            cwd=folder,
            env=environment,
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=slave,  # where bash looks for its terminal
            text=True,
            errors="replace",
            start_new_session=True,
        )
        os.close(slave)
        self._watchdog = threading.Timer(LONGEST_S, self.end)
        self._watchdog.start()
        self.lines = self._shell.stdout

    def press_ctrl_c(self):
        """End the foreground command."""
        os.write(self._master, b"\x03")

    def end(self):
        """End all that is left of the session."""
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(entry)) == self._shell.pid:
                    os.kill(int(entry), signal.SIGKILL)

    def close(self):
        """End all; the exit code of the shell."""
        try:
            code = self._shell.wait(10)
        except subprocess.TimeoutExpired:
            self.end()
            code = self._shell.wait()
        self._watchdog.cancel()
        self.end()
        os.close(self._master)
        self._shell.stdout.close()
        return code


def is_taken(port):
    """Whether a program of this machine listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def typed(blocks, folder, environment):
    """What each block printed.

    Raises:
        AssertionError: a command failed, or something that must be printed was not.
    """
    script = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
    for block in blocks:
        script += f"{block.marks.get('before', '')}\nprintf '{_MARK}\\n'\n{block.commands}\n"
    taken = sorted(port for port in set(_PORT.findall(script)) if is_taken(int(port)))
    assert not taken, f"ports of the page are taken, by other tests perhaps: {', '.join(taken)}"
    terminal = Terminal(script, folder, environment)
    outputs, missing, number = [""], set(), -1
    try:
        for line in terminal.lines:
            if line == f"{_MARK}\n":
                number += 1
                outputs.append("")
                missing = set(blocks[number].expected)
                continue
            outputs[-1] += line
            found = {text for text in missing if text in line}
            missing -= found
            if found and not missing and "until" in blocks[number].marks:
                terminal.press_ctrl_c()
    finally:
        code = terminal.close()
    shown = "".join(outputs)
    assert code == 0, f"exit code {code} after {blocks[max(number, 0)].place}:\n{shown}"
    for block, output in zip(blocks, outputs[1:], strict=True):
        absent = [text for text in block.expected if text not in output]
        assert not absent, f"{block.place} does not print {absent}:\n{output}"
        assert "Traceback" not in output, f"{block.place}:\n{output}"
        if "until" in block.marks and "mld.cli" in output:
            assert "Stopped: all children were notified; " in output, output
        if block.printed:
            assert masked(output) == masked(block.printed), block.place


def masked(text):
    """An output without numbers, times and the widths of columns."""
    return [re.sub(r"\d+(?:[.,:]\d+)*", "N", line).split() for line in text.split("\n")]


@pytest.fixture
def environment(installed, wheel):
    """That of a newcomer: of our programs only the installed ones are found."""
    ours = re.compile(r"(PYTHON|AWS_|KCL_|VIRTUAL_ENV|COVERAGE|PYTEST)")
    kept = {name: text for name, text in os.environ.items() if not ours.match(name)}
    path = f"{installed}:{os.environ['PATH']}"
    pip = {
        "PIP_NO_COMPILE": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_REQUIRE_VIRTUALENV": "1",
    }
    return kept | {"PATH": path, "JAVA_TOOL_OPTIONS": CHEAP_JAVA, "WHEEL": str(wheel), **pip}


def typed_here(name):
    """The blocks of a page that this run types."""
    return [block for block in blocks_of(name) if block.is_run and block.commands.strip()]


@pytest.mark.parametrize("name", [name for name in PAGES if typed_here(name)])
def test_the_commands_of_a_page_run_as_they_stand(name, environment, tmp_path):
    folder = tmp_path
    if any("in a checkout" in block.marks for block in blocks_of(name)):
        folder = copy_checkout(tmp_path / "checkout")
    typed(typed_here(name), folder, environment)


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (Block("p", "echo 1\nfalse\necho 2", "", {}), r"exit code 1 after p:\s+1\s"),
        (Block("p", "no-such-program", "", {}), "exit code 127"),
        (Block("p", "echo 1 a", "2  b\n", {}), "p"),
        (Block("p", "echo 1", "", {"prints": "2"}), r"does not print .'2'.:\s+1"),
        (Block("p", "echo Traceback", "", {}), "Traceback"),
    ],
)
def test_what_does_not_run_as_it_stands_is_seen(block, why, tmp_path):
    with pytest.raises(AssertionError, match=why):
        typed([block], tmp_path, os.environ)


def test_a_page_whose_port_is_taken_is_not_typed(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(AssertionError, match=f"ports of the page are taken.*{port}"):
            typed([Block("p", f"echo http://127.0.0.1:{port}/", "", {})], tmp_path, os.environ)


def test_ctrl_c_is_for_the_command_in_the_foreground(tmp_path):
    command = "trap 'echo stopped; exit 0' INT; echo {0}; while :; do sleep 0.1; done"
    blocks = [
        Block(
            "p",
            f'bash -c "{command.format("behind; touch there")}" &\n'
            "until [ -e there ]; do sleep 0.05; done",
            "",
            {},
        ),
        Block(
            "p", f'bash -c "{command.format("before")}"', "before\nstopped\n", {"until": "before"}
        ),
        Block("p", "echo 20 a", "1   a\n", {}),
    ]
    typed(blocks, tmp_path, os.environ)


#: Commands in the words of a ``--help``, and what they print in a folder with the files that they
#: name.
IN_HELP = {
    "kcl-mld --properties FILE": {"until": "started child"},
    "kcl-mld run --help": {"prints": "Usage: kcl-mld run"},
    "kcl-mld local FILE -- --log-level debug": {"until": "started child", "prints": "DEBUG"},
}


def test_the_commands_in_help_run_as_they_stand(installed, environment, tmp_path):
    helps = ["kcl-mld", *(f"kcl-mld {name}" for name in COMMANDS)]
    helps += [f"kcl-mld {name}" for name in ("leases list", "leases describe", "leases watch")]
    helps += [f"kcl-mld {name}" for name in ("leases migrate", "workers list", "records peek")]
    helps += [f"kcl-mld conform {name}" for name in ("child", "daemon")]
    helps += [f"kcl-mld-spark {name}".strip() for name in ("", *UPKEEP, WARM)]
    shown = set()
    for words in helps:
        program, *rest = words.split()
        text = " ".join(run(installed / program, *rest, "--help", folder=tmp_path).split())
        shown |= set(re.findall(r"(?<!sage: )\bkcl-mld(?:-spark)? [^.:]+(?=[.:]|$)", text))
    assert {" ".join(command.split()) for command in shown} == set(IN_HELP)
    folder = copy_checkout(tmp_path / "checkout")
    (folder / "properties" / "local.properties").rename(folder / "FILE")
    before = """kcl-mld local --stream local-sample > aws.env &
    until grep -qs NO_PROXY aws.env; do sleep 0.2; done
    . ./aws.env"""
    blocks = [Block(command, command, "", marks) for command, marks in IN_HELP.items()]
    blocks[0].marks["before"] = before
    typed(blocks, folder, environment)


def test_the_sample_of_kclpy_runs_as_it_is(environment, tmp_path):
    samples = kclpy() / "samples"
    (tmp_path / "sample.properties").write_bytes((samples / "sample.properties").read_bytes())
    (tmp_path / "records.jsonl").write_text('{"partitionKey": "en", "data": "Hello"}\n')
    command = "kcl-mld local --properties sample.properties --put records.jsonl"
    marks = {"until": "streamArn: is a sample's\nstarted child\nEnhanced fan-out by consumer"}
    # pip puts the program there.
    there = environment | {"PATH": f"{samples}:{environment['PATH']}"}
    typed([Block("sample.properties", command, "", marks)], tmp_path, there)
