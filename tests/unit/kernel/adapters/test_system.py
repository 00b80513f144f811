"""The system's clocks and ids; texts for it in a locale that lacks their letters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid

import pytest

from kcl_mld.kernel.adapters.system import RandomIds, SystemClock, system_text

#: Python takes the locale C for one of UTF-8, unless it is told not to.
ASCII_ONLY = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PROGRAM = """
import json, os, sys
from kcl_mld.kernel.adapters.system import system_text
texts = json.load(sys.stdin)
print(json.dumps([os.fsencode(system_text(text)).hex() for text in texts]))
"""


def run(argv, folder, stdin=""):
    return subprocess.run(
        [sys.executable, "-P", *argv],
        input=stdin,
        cwd=folder,
        env=os.environ | ASCII_ONLY,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("text", ["", "plain", "b\udcc3\udcbccher", "\udcff", "bücher"])
def test_what_the_locale_can_write_stays(text):
    assert system_text(text) == text


def test_what_no_locale_can_write_is_written_all_the_same():
    assert os.fsencode(system_text("a\ud800")) == b"a\xed\xa0\x80"


def test_a_locale_without_the_letters_writes_them_in_utf8(tmp_path):
    texts = ["plain", "bücher/\U0001f600", "ü\udcff", "ü\ud800"]
    done = run(["-c", PROGRAM], tmp_path, json.dumps(texts))
    assert done.returncode == 0, done.stderr
    found = [bytes.fromhex(each) for each in json.loads(done.stdout)]
    assert found == [
        b"plain",
        "bücher/\U0001f600".encode(),
        "ü".encode() + b"\xff",
        "ü".encode() + b"\xed\xa0\x80",
    ]


def properties(folder, **more):
    values = {
        "streamName": "s",
        "applicationName": "app",
        "regionName": "us-east-1",
        "AwsCredentialsProvider": "EnvironmentVariableCredentialsProvider",
        "retrievalMode": "POLLING",
        **more,
    }
    path = folder / "app.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), "utf-8")
    return f"{folder.name}/{path.name}"


@pytest.mark.parametrize("name", ["child", "missing", "child/no/file"])
def test_a_program_whose_path_has_other_letters_is_looked_at(tmp_path, name):
    folder = tmp_path / "bücher"
    folder.mkdir()
    program = folder / "child"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    # As \u escapes: a properties file is read as Latin-1, as in Java.
    file = properties(folder, executableName=f"b\\u00fccher/{name}")
    done = run(["-m", "kcl_mld", "validate", file], tmp_path)
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if name == "child" else 2), done.stdout + done.stderr
    assert ("does not exist" in done.stdout + done.stderr) == (name != "child")


def test_the_place_of_a_table_may_have_other_letters(tmp_path):
    folder = tmp_path / "bücher"
    folder.mkdir()
    app = folder / "app.py"
    app.touch()
    more = {"spark.sink": "delta", "spark.sink.path": f"{tmp_path}/b\\u00fccher/t"}
    file = properties(folder, executableName="cat", **more)
    done = run(["-m", "kcl_mld", "validate", file], tmp_path)
    assert "Traceback" not in done.stderr
    assert done.returncode in {0, 2}


def test_ages_are_measured_by_the_clock_that_counts_suspension_too() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_the_wall_clock_counts_epoch_seconds() -> None:
    before = time.time()
    assert before <= SystemClock().wall() <= time.time()


def test_what_others_compare_is_never_older_than_either_clock_says() -> None:
    for service_ahead_s, service, earliest in ((300.0, 300.0, 0.0), (-300.0, 0.0, -300.0)):
        clock = SystemClock(lambda ahead_s=service_ahead_s: time.time() + ahead_s)  # type: ignore[misc]
        now = clock.wall()
        assert clock.ahead_s() == pytest.approx(-service_ahead_s, abs=60)
        assert clock.service() - now == pytest.approx(service, abs=60)
        assert clock.earliest() - now == pytest.approx(earliest, abs=60)
        assert clock.corrected() - now == pytest.approx(service_ahead_s, abs=60)


def test_without_a_date_the_wall_clock_counts() -> None:
    clock = SystemClock()
    assert clock.ahead_s() is None
    before = time.time()
    assert before <= clock.service() <= clock.earliest() <= clock.corrected() <= time.time()


def test_the_rounding_of_dates_is_no_offset() -> None:
    assert SystemClock(lambda: time.time() + 1.0).ahead_s() == 0.0


def test_ids_are_uuids_and_differ() -> None:
    ids = RandomIds()
    first, second = ids.new_id(), ids.new_id()
    assert first != second
    assert str(uuid.UUID(first)) == first
