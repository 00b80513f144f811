"""The stub's own decisions; its life with a host is in ``tests/spark``."""

import os
import socket
import subprocess
import sys

import pytest

from kcl_mld.spark import stub, stub_wait
from kcl_mld.spark.keep_alive import KEEP_ALIVE


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "kcl_mld.spark.stub", *arguments],
        check=False,
        capture_output=True,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
    )


def run_stub(*arguments, cwd=None):
    """Exit code and standard error."""
    found = run(*arguments, cwd=cwd)
    assert found.stdout == b""
    return found.returncode, found.stderr.decode()


def test_the_stub_imports_nothing_but_the_standard_library():
    program = (
        "import sys\nbefore = set(sys.modules)\nimport kcl_mld.spark.stub\n"
        "print({name.partition('.')[0] for name in set(sys.modules) - before}"
        " - sys.stdlib_module_names)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stdout == "{'kcl_mld'}\n"


@pytest.mark.parametrize("arguments", [[], ["--properties"], ["--wrong", "app.py"]])
def test_a_wrong_call_shows_the_usage(arguments):
    assert run_stub(*arguments) == (2, f"kcl-mld-spark: {stub.USAGE}\n")


def test_help_is_no_error():
    assert run_stub("--help") == (0, f"{stub.USAGE}\n{stub.MORE}\n")


@pytest.mark.parametrize("command", stub.UPKEEP)
def test_looking_after_a_table_without_deltalake_says_what_to_install(
    command, tmp_path, monkeypatch
):
    (tmp_path / "deltalake.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = f"kcl-mld-spark {command}: deltalake is missing: pip install 'kcl-mld[spark]'\n"
    words = ["2"] if command == "new-epoch" else []
    assert run_stub(command, "table", *words) == (3, said)
    code, errors = run_stub(command, "--wrong", "table", *words)
    assert (code, "unrecognized arguments: --wrong" in errors) == (2, True)


def test_looking_after_a_table_without_any_package_of_the_extra_says_the_same(
    tmp_path, monkeypatch
):
    missing = "raise ModuleNotFoundError(name='pyarrow')\n"
    (tmp_path / "pyarrow.py").write_text(missing)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = "kcl-mld-spark history: pyarrow is missing: pip install 'kcl-mld[spark]'\n"
    assert run_stub("history", "table") == (3, said)


@pytest.mark.parametrize("command", stub.UPKEEP)
def test_the_help_of_looking_after_a_table_needs_no_deltalake(command, tmp_path, monkeypatch):
    (tmp_path / "deltalake.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    helped = run(command, "--help")
    assert (helped.returncode, helped.stderr) == (0, b"")
    assert helped.stdout.startswith(f"usage: kcl-mld-spark {command}".encode())


def test_keeping_classes_is_a_command():
    helped = run(stub.WARM, "--help")
    assert (helped.returncode, helped.stderr) == (0, b"")
    assert helped.stdout.startswith(b"usage: kcl-mld-spark warm")


def test_a_missing_app_is_named_by_its_full_path(tmp_path):
    code, errors = run_stub("none.py", cwd=os.getcwd())
    assert code == 2
    assert errors == f"kcl-mld-spark: the app {os.getcwd()}/none.py is not there or can't be read\n"


@pytest.mark.parametrize("option", ["-p", "--properties", "--properties-file"])
def test_a_missing_file_of_properties_is_named(tmp_path, option):
    code, errors = run_stub(option, str(tmp_path / "none"), __file__)
    assert code == 2
    assert errors == f"kcl-mld-spark: the properties file {tmp_path}/none can't be read\n"


def test_outside_the_checkout_the_working_directory_hides_no_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert stub.command("/app.py", ["x"]) == [
        sys.executable,
        "-P",
        "-m",
        "kcl_mld.spark.stub",
        "/app.py",
        "x",
    ]


def test_a_host_is_told_the_file_and_the_arguments_of_the_app():
    command = stub.host_command("a.module", "/file", "/app.py", ["x"])
    assert command[-6:] == [
        "-m",
        "a.module",
        "--properties",
        "/file",
        "/app.py",
        "x",
    ]
    assert stub.host_command("a.module", None, "/app.py", [])[-2:] == ["a.module", "/app.py"]


def test_a_directory_that_cannot_be_private_is_said():
    program = (
        "from kcl_mld.spark import host_socket, stub\n"
        "host_socket._LONGEST_PATH = 0\n"
        f"stub.main([{__file__!r}])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert found.returncode == 70
    expected = "kcl-mld-spark: the Spark host can't be reached: no private directory"
    assert found.stderr.startswith(expected)
    assert found.stdout == ""


def test_a_working_directory_that_is_gone_is_said(tmp_path):
    program = (
        "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        f"from kcl_mld.spark import stub; stub.main([{__file__!r}])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert found.returncode == 2
    assert found.stderr.startswith("kcl-mld-spark: the working directory is gone: start the daemon")


GONE = f"went away without a word: {stub_wait.GONE_ADVICE}"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"", (70, f"the Spark host {GONE}")),
        (b'{"host": 7}\n', (70, f"the Spark host (pid 7) {GONE}")),
        (b'{"host": 7}\n{"exit": 0, "mess', (70, f"the Spark host (pid 7) {GONE}")),
        (b'{"host": 7}\n{"exit": 3, "message": "no Java"}\n', (3, "no Java")),
        (b'{"exit": 2, "message": ""}\n', (2, "")),
    ],
)
def test_the_hosts_last_word_is_the_end(said, expected):
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(said)
        theirs.close()
        assert stub_wait.wait(ours.fileno()) == expected


def test_a_stub_shows_that_it_lives_until_the_host_is_there_and_never_after():
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-I", "-S", stub_wait.__file__, str(ours.fileno()), "0.01"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[ours.fileno()])
        ours.close()
        with process.stdout:
            for _ in range(3):
                assert process.stdout.readline() == KEEP_ALIVE
            theirs.sendall(b'{"host": 7}\n')
            assert set(process.stdout.readlines()) <= {KEEP_ALIVE}, "it let go of its stdout"
            theirs.sendall(b'{"exit": 3, "message": ""}\n')
        theirs.shutdown(socket.SHUT_WR)
        assert process.wait(120) == 3


@pytest.mark.parametrize(
    ("environ", "text", "expected_s"),
    [
        ({"KCL_MLD_TIMEOUT_S": "2.0", "KCL_MLD_CAPABILITIES": "tick"}, "", 0.5),
        ({}, "timeoutInSeconds = 2\n", 0.5),
        ({}, "", 1.0),
    ],
)
def test_a_stub_knows_how_often_it_must_show_that_it_lives(tmp_path, environ, text, expected_s):
    path = tmp_path / "app.properties"
    path.write_text(text)
    assert stub.keep_alive_s(environ, str(path)) == expected_s


def test_a_host_that_broke_off_with_our_words_unread_counts_as_gone():
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(b"hello")
        theirs.sendall(b'{"host": 7}\n')
        theirs.close()
        assert stub_wait.wait(ours.fileno()) == (70, f"the Spark host (pid 7) {GONE}")


def test_the_last_line_of_a_stub_says_it_all_however_many_lines_the_host_wrote():
    """The daemon quotes one line in its ERROR."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", stub_wait.__file__, str(ours.fileno()), "9"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, pass_fds=[ours.fileno()])
    ours.close()
    with theirs, process.stderr:
        theirs.sendall(b'{"exit": 69, "message": "it ended; its last lines:\\n  | a\\n  | >"}\n')
        theirs.shutdown(socket.SHUT_WR)
        said = process.stderr.read()
        assert said == b"kcl-mld-spark: it ended; its last lines: | a | >\n"
    assert process.wait(120) == 69
