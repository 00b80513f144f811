"""The command line: Java's forms and messages, our commands, exit codes."""

import logging
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import kcl_mld.cli.run
from kcl_mld.cli import COMMANDS, cli, dispatch
from kcl_mld.cli.options import expand_argument_files
from kcl_mld.cli.run_options import RunOptions
from kcl_mld.cli.simulate import Seconds
from kcl_mld.errors import ConfigError, ResourceMissing

MORE = "For more information, run: kcl-mld --help\n"


def more(command):
    """The last line of an error in using a command."""
    return f"For more information, run: kcl-mld {command} --help\n"


@pytest.fixture
def started(monkeypatch):
    """What the daemon was started with, instead of starting it."""
    calls = []

    def run(options):
        calls.append(options)
        return 0

    monkeypatch.setattr(kcl_mld.cli.run, "run", run)
    return calls


def invoke(capsys, *args):
    """Exit code, stdout, stderr."""
    code = dispatch(list(args))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# --- the daemon's command line


@pytest.mark.parametrize(
    "args",
    [
        ["x.properties"],
        ["-p", "x.properties"],
        ["-px.properties"],
        ["-p=x.properties"],
        ["--properties-file", "x.properties"],
        ["--properties-file=x.properties"],
        ["--properties", "x.properties"],
        ["--", "x.properties"],
        ["run", "x.properties"],
        ["run", "--properties", "x.properties"],
    ],
)
def test_a_properties_file_is_named_in_any_of_these_ways(started, args):
    assert dispatch(args) == 0
    assert started == [RunOptions(properties_file="x.properties")]


def test_everything_about_a_run_may_be_said(started):
    args = "-p x -l log.xml --log-level debug --log-format JSON --http 127.0.0.1:8080"
    assert dispatch(shlex.split(args)) == 0
    assert started == [
        RunOptions(
            properties_file="x",
            log_configuration="log.xml",
            log_level="DEBUG",
            log_format="json",
            http=("127.0.0.1", 8080),
        )
    ]


def test_nothing_is_missing_a_properties_file(capsys):
    code, out, err = invoke(capsys)
    assert code == 2
    assert out.startswith("Usage: kcl-mld run")
    assert err == "Properties file missing, please provide a properties file\n" + MORE


@pytest.mark.parametrize("args", [[""], ["-p", ""], ["-p", "", "x"]])
def test_an_empty_name_is_missing_too(capsys, args):
    code, _, err = invoke(capsys, *args)
    assert code == 2
    assert err.startswith("Properties file missing")


@pytest.mark.parametrize("args", [["a", "b"], ["-p", "x", "a", "b"]])
def test_two_files_are_too_many(capsys, args):
    code, out, err = invoke(capsys, *args)
    assert code == 2
    assert out.startswith("Usage: ")
    assert err.startswith(
        "Expected a single argument, but found multiple arguments.  Arguments: a, b\n"
    )


@pytest.mark.parametrize(
    ("args", "words", "command"),
    [
        (
            ["valdate", "x"],
            "'valdate' is neither a command nor a file. Did you mean kcl-mld validate?",
            None,
        ),
        (["VALIDATE"], "Did you mean kcl-mld validate?", None),
        (["lease", "list", "x"], "Did you mean kcl-mld leases?", None),
        (["print_command"], "Did you mean kcl-mld print-command?", None),
        (["leases", "lst"], "No such command 'lst'. Did you mean list?", "leases"),
        (["conform", "foo"], "No such command 'foo'. Commands: child, daemon.", "conform"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest(capsys, args, words, command):
    code, _, err = invoke(capsys, *args)
    assert code == 2
    assert words in err
    assert err.endswith(MORE if command is None else more(command))


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e999", "0", "-1", "soon", "1e10", "9" * 400])
def test_a_time_that_is_none_is_an_error_of_usage(capsys, seconds):
    code, _, err = invoke(capsys, "conform", "child", "--timeout-s", seconds, "--", "true")
    assert code == 2
    assert "Invalid value for '--timeout-s'" in err
    assert err.endswith(more("conform child"))


def numeric_options(command, path=()):
    """Each option of a command and of the commands below it that takes a number."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            yield from numeric_options(below, (*path, name))
        return
    for option in command.params:
        if isinstance(option.type, NUMBERS) or option.metavar == "COUNT[:GROUP]@TIME":
            yield (*path, option.opts[0])


#: Click's own types have no bounds, or let nan and inf through.
NUMBERS = (type(click.INT), type(click.FLOAT), Seconds)
ENDLESS = ["9" * 400, "9" * 5000, "-" + "9" * 400, "1e308", "nan", "inf", "1.5.5", ""]
#: What a command wants besides the option.
BESIDE = {"conform": ["--", "true", "{properties}"], "migrate": ["--to", "single-stream", "none"]}


@pytest.mark.parametrize("words", list(numeric_options(cli)), ids=" ".join)
@pytest.mark.parametrize("number", ENDLESS, ids=lambda number: number[:4] + str(len(number)))
def test_no_number_is_too_long_for_any_command(capsys, words, number):
    *command, option = words
    code, _, err = invoke(
        capsys, *command, f"{option}={number}", *BESIDE.get(command[-1], BESIDE.get(command[0], []))
    )
    assert code == 2
    assert option in err
    assert len(err) < 1000


def test_a_number_that_is_shown_in_full_is_short(capsys):
    code, _, err = invoke(capsys, "local", "--shards", "9" * 5000)
    assert code == 2
    assert "'--shards': '" + "9" * 40 + "… [4960 characters more]' is not a whole number" in err
    code, _, err = invoke(capsys, "local", "--shards", "10001")
    assert "Invalid value for '--shards': 10001 is not from 1 to 10000" in err


def test_a_file_that_is_named_nearly_like_a_command_is_a_file(started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "valdate").touch()
    assert dispatch(["valdate"]) == 0
    assert started[0].properties_file == "valdate"


def test_a_mistyped_file_is_answered_with_the_nearest(capsys, tmp_path, restored_logging):
    (tmp_path / "app.properties").touch()
    code, _, err = invoke(capsys, str(tmp_path / "ap.properties"))
    assert code == 2
    assert err.endswith(f"ap.properties'. Did you mean '{tmp_path}/app.properties'?\n")


def test_an_option_wins_over_a_plain_file(started):
    assert dispatch(["-p", "one", "other"]) == 0
    assert started[0].properties_file == "one"
    assert started[0].warnings == (
        "Overriding the properties file with the --properties-file option",
    )


@pytest.mark.parametrize("option", ["-p", "--properties-file", "-l"])
def test_an_option_without_its_value_is_an_error_without_usage(capsys, option):
    code, out, err = invoke(capsys, option)
    assert (code, out) == (2, "")
    assert err == f"Expected a value after parameter {option}\n" + MORE


def test_the_option_is_given_once(capsys):
    code, out, err = invoke(capsys, "-p", "a", "--properties-file", "b")
    assert (code, out) == (2, "")
    assert err == "Can only specify option -p once.\n" + MORE


@pytest.mark.parametrize("args", [["-x"], ["--nope"], ["x", "--help=1"]])
def test_an_unknown_option_is_an_error(capsys, args):
    code, _, err = invoke(capsys, *args)
    assert code == 2
    assert err.endswith(MORE)


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["run", "--wrong"], "run"),
        (["run"], "run"),
        (["run", "-p"], "run"),
        (["run", "-p", "a", "-p", "b"], "run"),
        (["run", "a", "b"], "run"),
        (["validate"], "validate"),
        (["validate", "--wrong"], "validate"),
        (["properties", "--wrong"], "properties"),
        (["print-command", "--sample"], "print-command"),
        (["leases", "lsit"], "leases"),
        (["leases", "--wrong"], "leases"),
        (["leases", "list"], "leases list"),
        (["leases", "list", "x", "--by", "age"], "leases list"),
        (["leases", "migrate", "x", "--to"], "leases migrate"),
        (["leases", "migrate", "--to", "single-stream"], "leases migrate"),
        (["local", "--wrong"], "local"),
        (["local", "--put"], "local"),
        (["local", "x", "--stream", "s"], "local"),
        (["local", "--", "--http", "127.0.0.1:0"], "local"),
        (["local", "x", "y"], "local"),
        (["simulate", "--wrong"], "simulate"),
        (["simulate", "--workers", "0"], "simulate"),
        (["simulate", "surplus"], "simulate"),
        (["conform", "dog"], "conform"),
        (["conform", "child"], "conform child"),
        (["conform", "daemon", "--only", "none", "x"], "conform daemon"),
        (["conform", "daemon", "--baseline", "none", "x"], "conform daemon"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_an_error_of_usage_points_to_the_help_of_its_own_command(capsys, args, command):
    code, _, err = invoke(capsys, *args)
    assert code == 2
    assert err.endswith(more(command))
    assert invoke(capsys, *command.split(), "--help")[0] == 0


@pytest.mark.parametrize("group", ["leases", "workers", "conform"])
def test_a_group_without_a_command_prints_its_help_once(capsys, group):
    code, out, err = invoke(capsys, group)
    assert (code, out) == (2, "")
    assert err.count("Usage:") == 1
    assert err.endswith(more(group))


@pytest.mark.parametrize("kind", ["child", "daemon"])
def test_where_a_report_cannot_be_written_no_conformance_is_tested(capsys, tmp_path, kind):
    for place, why in (
        (tmp_path / "no" / "x", "the folder does not"),
        (tmp_path, "is a directory"),
    ):
        code, _, err = invoke(
            capsys, "conform", kind, "--json", str(place), "--", "true", "{properties}"
        )
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith(f"--json: {place}: {why}")


@pytest.mark.parametrize("kind", ["child", "daemon"])
def test_a_program_that_is_not_there_is_told_before_conformance_is_tested(capsys, kind):
    code, out, err = invoke(capsys, "conform", kind, "--", "pythn", "{properties}")
    assert (code, out) == (2, "")
    assert err.startswith("pythn is not found in PATH")


def test_a_baseline_that_is_no_report_is_told_without_numbers_of_errors(capsys, tmp_path):
    (tmp_path / "x").write_text("{}")
    for name, why in (
        ("nofile", "nofile can't be read: No such"),
        (tmp_path / "x", "JSON as --json"),
    ):
        _, _, err = invoke(capsys, "conform", "daemon", "--baseline", str(name), "{properties}")
        assert why in err
        assert "Errno" not in err


def test_an_empty_log_configuration_is_ignored(started):
    assert dispatch(["x", "-l", ""]) == 0
    assert started[0].log_configuration is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("[::1]:1", ("::1", 1)),
        ("localhost:0", ("localhost", 0)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_addresses_to_serve_on(started, text, address):
    assert dispatch(["x", "--http", text]) == 0
    assert started[0].http == address


def test_the_address_may_be_that_of_the_variable(started, monkeypatch):
    monkeypatch.setenv("KCL_MLD_HTTP", "0.0.0.0:8080")
    assert dispatch(["x"]) == 0
    assert dispatch(["x", "--http", "127.0.0.1:0"]) == 0
    monkeypatch.setenv("KCL_MLD_HTTP", "")
    assert dispatch(["x"]) == 0
    assert [one.http for one in started] == [("0.0.0.0", 8080), ("127.0.0.1", 0), None]


@pytest.mark.parametrize(
    "text", ["8080", ":8080", "::1:80", "host:", "host:x", "host:65536", "h:²", "h:" + "9" * 5000]
)
def test_other_addresses_are_refused(capsys, text):
    code, _, err = invoke(capsys, "x", "--http", text)
    assert code == 2
    assert "is not HOST:PORT" in err


def test_an_argument_file_stands_for_its_lines(started, tmp_path):
    path = tmp_path / "args"
    path.write_text("# how we run it\n--log-level\nINFO\n\nmy file.properties\n")
    assert dispatch([f"@{path}"]) == 0
    assert started == [RunOptions(properties_file="my file.properties", log_level="INFO")]
    assert expand_argument_files(["a", "@" + str(path), "b"])[-1] == "b"


def test_a_missing_argument_file_is_an_error(capsys):
    code, _, err = invoke(capsys, "@nowhere")
    assert code == 2
    assert err.startswith("Could not read file nowhere: No such file or directory; @nowhere stands")


def test_a_nul_in_an_argument_file_is_an_error(capsys, tmp_path):
    path = tmp_path / "args"
    path.write_text("-l\na\0b\nmy.properties\n")
    code, _, err = invoke(capsys, f"@{path}")
    assert code == 2
    assert err.startswith(f"The file {path} contains the character NUL, which no argument may have")


def test_a_missing_properties_file_is_an_error_in_javas_words(capsys, restored_logging):
    code, _, err = invoke(capsys, "nofile.properties")
    assert code == 2
    assert err == (
        "Error while reading properties file: Unable to find property file in classpath, or file"
        " system: 'nofile.properties'\n"
    )


def test_a_directory_is_no_properties_file(capsys, tmp_path, restored_logging):
    code, _, err = invoke(capsys, str(tmp_path))
    assert code == 2
    assert "Is a directory" in err


def test_the_log_configuration_comes_before_the_properties(capsys, restored_logging):
    code, _, err = invoke(capsys, "-l", "nolog.xml", "nofile.properties")
    assert code == 2
    assert err.startswith(
        "Error while loading log configuration: nolog.xml (No such file or directory)\n"
    )


@pytest.mark.parametrize("text", ["a = b\n", "{", "[1]", '{"a": 1}', "<x/>", ""])
def test_a_log_configuration_of_another_form_is_told_what_is_expected(
    capsys, tmp_path, restored_logging, text
):
    (tmp_path / "log").write_text(text)
    code, _, err = invoke(capsys, "-l", str(tmp_path / "log"), "nofile.properties")
    assert code == 2
    assert err.startswith(f"Error while loading log configuration: {tmp_path}/log: ")
    assert 'a logback XML, or JSON with "version": 1' in err


def test_a_wrong_file_is_explained_line_by_line(capsys, tmp_path, restored_logging):
    path = tmp_path / "x"
    path.write_text("fooBar = 1\nmetricsLevel = LOUD\nmaxLeasesForWorker = -1\n")
    code, out, err = invoke(capsys, "--log-format", "text", str(path))
    assert (code, out) == (2, "")
    assert f"{path}:1: warning: fooBar: not a property" in err
    assert f"{path}:2: error: metricsLevel: 'LOUD' is not one of its values" in err
    assert f"{path}:3: error: maxLeasesForWorker: -1, but" in err
    assert f"{path}: error: applicationName: Application name is required" in err


def test_logging_follows_the_command_line_and_the_file(capsys, tmp_path, restored_logging):
    log = tmp_path / "log.xml"
    log.write_text(
        '<configuration><root level="ERROR"/><logger name="com.x" level="INFO"/>'
        '<logger name="software.amazon.kinesis" level="INFO"/></configuration>'
    )
    invoke(capsys, "-l", str(log), "-p", "nofile", "other", "--log-format", "text")
    assert logging.getLogger().level == logging.ERROR
    assert logging.getLogger("mld").level == logging.INFO
    _, _, err = invoke(capsys, "-l", str(log), "-p", "nofile", "other", "--log-level", "debug")
    assert logging.getLogger().level == logging.DEBUG
    assert "Overriding the properties file" in err
    assert "logger com.x has no counterpart" in err


def test_a_python_log_configuration_is_applied(capsys, tmp_path, restored_logging):
    log = tmp_path / "log.json"
    log.write_text('\ufeff{"version": 1, "loggers": {"mld.probe2": {"level": "ERROR"}}}')
    invoke(capsys, "-l", str(log), "nofile")
    assert logging.getLogger("mld.probe2").level == logging.ERROR


# --- commands


def test_a_commands_name_is_the_command_and_a_path_is_a_file(started, capsys):
    assert dispatch(["./validate"]) == 0
    assert started[0].properties_file == "./validate"
    code, _, err = invoke(capsys, "validate")
    assert code == 2
    assert "Properties file missing" in err


def reading_a_file(command, path=()):
    """The words of each command that reads a properties file."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            yield from reading_a_file(below, (*path, name))
    elif any("-p" in option.opts for option in command.params):
        yield path


#: What commands need beside their file.
_NEEDED = {
    "migrate": ["--to", "single-stream"],
    "wait": ["--for", "all-owned"],
    "iam": ["--role", "worker"],
    "reset": ["shardId-1", "--to-latest"],
    "show": ["abcdef"],
    "replay": ["abcdef"],
}
_NAME_SHARDS = {
    *("describe", "peek", "pause", "release", "resume", "withdraw", "delete", "deregister"),
}


def needed(words):
    named = ["shardId-1"] if _NAME_SHARDS & set(words) else []
    return next((_NEEDED[word] for word in words if word in _NEEDED), named)


def test_every_command_reads_its_file_with_what_is_set_outside_it(
    capsys, tmp_path, restored_logging, monkeypatch
):
    file = tmp_path / "app.properties"
    file.write_text(
        "executableName = true\napplicationName = app\nstreamName = ${STREAM}\n"
        "AwsCredentialsProvider = DefaultCredentialsProvider\nregionName = us-east-1\n"
    )
    monkeypatch.setenv("STREAM", "a-stream")
    outside = ["--set", "tableName=a b", "--set", "maxRecords=${STREAM}", "--expand-env"]
    for words in sorted(reading_a_file(cli)):
        if words in {("local",), ("print-command",)}:  # the daemon judges there
            continue
        code, out, err = invoke(capsys, *words, str(file), *needed(words), *outside)
        said = out + err
        assert code in {1, 2}, words
        assert "tableName: 'a b' is not a valid table name" in said, words
        assert "a-stream" not in said, words
        assert ": error: streamName" not in said, words


@pytest.mark.usefixtures("on_path")
def test_the_printed_command_sets_the_same(capsys):
    args = ["print-command", "-p", "x", "--set", "tableName = a", "--set", "a=b c", "--expand-env"]
    printed = "kcl-mld --properties x --set tableName=a --set 'a=b c' --expand-env\n"
    assert invoke(capsys, *args) == (0, printed, "")


def test_every_command_takes_its_properties_file_in_the_same_ways(capsys, restored_logging):
    takes_names = {
        "explain",
        "describe",
        "peek",
        "pause",
        "release",
        "resume",
        "reset",
        "withdraw",
        "delete",
        "deregister",
        "show",
        "replay",
    }
    commands = sorted(reading_a_file(cli))
    named = ["run", "validate", "print-command", "leases list", "leases migrate", "local"]
    named += ["console", "doctor", "explain", "iam", "wait"]
    named += ["consumers list", "consumers deregister"]
    named += ["leases describe", "leases watch", "workers list", "records peek"]
    named += [
        "leases delete",
        "leases export",
        "leases pause",
        "leases release",
        "leases reset",
        "leases resume",
        "leases withdraw",
    ]
    named += ["dead-letters list", "dead-letters show", "dead-letters replay"]
    assert commands == sorted(tuple(words.split()) for words in named)
    for words in commands:
        rest = needed(words)
        answers = {
            invoke(capsys, *words, *way, *rest)
            for way in (["x"], ["-p", "x"], ["--properties", "x"], ["--properties-file=x"])
        }
        assert len(answers) == 1, answers
        ((code, out, err),) = answers
        assert (code == 0 and out.endswith("--properties x\n")) or "property file" in err, words
        if not takes_names & set(words):  # other words are shards there
            assert invoke(capsys, *words, "x", "-p", "y", *rest)[2].count("Overriding") == 1


def completed(capsys, monkeypatch, line):
    """What a shell is given for a line, in the form of bash: kinds and texts."""
    monkeypatch.setenv("_KCL_MLD_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        dispatch([])
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kcl-mld app", ["file,app"]),
        ("kcl-mld va", ["file,va", "plain,validate"]),
        ("kcl-mld --prop", ["plain,--properties", "plain,--properties-file"]),
        ("kcl-mld --vers", ["plain,--version"]),
        ("kcl-mld -p a", ["file,a"]),
        ("kcl-mld --properties a", ["file,a"]),
        ("kcl-mld app.properties --log-l", ["plain,--log-level"]),
        ("kcl-mld @gone --log-l", ["plain,--log-level"]),
        ("kcl-mld validate a", ["file,a"]),
        ("kcl-mld print-command a", ["file,a"]),
        ("kcl-mld leases list -p a", ["file,a"]),
        ("kcl-mld leases migrate a", ["file,a"]),
        ("kcl-mld local --put a", ["file,a"]),
        ("kcl-mld conform child -- python3 a", ["file,a"]),
        ("kcl-mld simulate --plot a", ["file,a"]),
    ],
)
def test_a_shell_completes_commands_options_and_files(capsys, monkeypatch, line, offered):
    assert completed(capsys, monkeypatch, line) == offered


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command_without_importing_it(capsys, flag):
    code, out, _ = invoke(capsys, flag)
    assert code == 0
    assert all(name in out for name in COMMANDS)


def test_help_of_the_daemon_is_not_a_file_name(capsys):
    code, out, _ = invoke(capsys, "-p", "x", "--help")
    assert code == 0
    assert "--log-configuration" in out


def test_the_version_is_printed(capsys):
    code, out, _ = invoke(capsys, "--version")
    assert (code, out) == (0, f"kcl-mld, version {kcl_mld.__version__}\n")


def test_a_command_that_is_not_there_says_so(capsys, monkeypatch):
    monkeypatch.setitem(COMMANDS, "leases", ("kcl_mld.cli.no_such_module", ""))
    code, _, err = invoke(capsys, "leases")
    assert code == 2
    assert err.startswith("leases is not part of this version")


def test_a_command_that_lacks_a_package_names_it(capsys, monkeypatch, tmp_path):
    (tmp_path / "needy.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "local", ("needy", ""))
    code, _, err = invoke(capsys, "local")
    assert code == 2
    assert err.startswith("local needs the package no_such_package: pip install 'kcl-mld[local]'")


@pytest.mark.parametrize(("error", "code"), [(ConfigError("x"), 2), (ResourceMissing("x"), 4)])
def test_an_error_decides_the_exit_code(capsys, monkeypatch, error, code):
    def run(_options):
        raise error

    monkeypatch.setattr(kcl_mld.cli.run, "run", run)
    assert invoke(capsys, "x") == (code, "", "x\n")


def test_main_ends_the_process_with_the_code():
    text = "from kcl_mld.cli import main; main(['no-such.properties'])"
    done = subprocess.run(
        [sys.executable, "-c", text], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "no-such.properties" in done.stderr


def test_the_module_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "kcl_mld", "a", "b"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "Arguments: a, b" in done.stderr


def test_a_reader_that_goes_away_leaves_no_traceback(tmp_path):
    path = tmp_path / "x"
    path.write_text("a = b\n" * 5_000)
    command = (
        f"{shlex.quote(sys.executable)} -m kcl_mld validate {path} | head -1; echo $PIPESTATUS"
    )
    done = subprocess.run(
        ["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.splitlines()[-1], done.stderr) == ("141", "")


def test_the_daemons_command_line_is_parsed_without_botocore():
    program = (
        "import sys; from kcl_mld.cli import dispatch; dispatch(['--version']);"
        "sys.exit(any(m in sys.modules for m in ('botocore', 'boto3', 'xml.etree.ElementTree')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, timeout=60
    )
    assert done.returncode == 0


def test_every_command_loads_with_the_oldest_click_that_setup_cfg_allows():
    """click 8.1 has no generic ``ParamType`` and no ``NoArgsIsHelpError``; apps may bring it."""
    program = (
        "import importlib, click\n"
        "click.ParamType.__class_getitem__ = None\n"
        "vars(click.exceptions).pop('NoArgsIsHelpError', None)\n"
        "from kcl_mld.cli import COMMANDS, dispatch\n"
        "for module, _ in COMMANDS.values(): importlib.import_module(module)\n"
        "dispatch(['leases', 'nonsense'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "No such command" in done.stderr) == (0, True), done.stderr


def test_a_worker_that_polls_one_stream_imports_nothing_of_other_ways_to_work():
    """Each module costs the start; what the file does not ask for is imported when it is needed."""
    others = (
        "kcl_mld.fleet.adapters.worker_load",
        "kcl_mld.retrieval.adapters.schema_decoders",
        "kcl_mld.app.many_streams",
        "kcl_mld.fleet.rules.assignment.planning",
        "kcl_mld.fleet.lease_assigner",
        "kcl_mld.retrieval.fan_out_publisher",
        "kcl_mld.retrieval.schema_registry",
        "kcl_mld.app.stream_tracker",
    )
    program = (
        f"import sys, kcl_mld.cli.run, mld.app; print([m for m in {others} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n"


# --- surroundings


def run_process(command, tmp_path, **surroundings):
    """Exit code and stderr of a shell command in which ``kcl-mld`` is ours."""
    program = f"{shlex.quote(sys.executable)} -P -m kcl_mld"
    shell = command.replace("kcl-mld", program)
    done = subprocess.run(
        ["/bin/sh", "-c", shell],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | surroundings,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", ["--help", "properties", "validate x.properties"])
def test_a_full_disk_is_one_line(tmp_path, arguments):
    (tmp_path / "x.properties").touch()
    code, err = run_process(f"kcl-mld {arguments} > /dev/full", tmp_path)
    assert (code, err) == (1, "kcl-mld: No space left on device\n")


@pytest.mark.parametrize("command", ["missing.properties", "properties", "conform child -- true"])
def test_modules_of_the_users_do_not_replace_ours(tmp_path, command):
    """Neither those of our folders' names, beside the file and in PYTHONPATH."""
    expected = run_process(f"kcl-mld {command}", tmp_path)
    for name in ("protocol", "mld"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('it ran')\n")
    assert run_process(f"kcl-mld {command}", tmp_path, PYTHONPATH=str(tmp_path)) == expected
    program = f"{shlex.quote(sys.executable)} -m kcl_mld {command}"
    assert run_process(program, tmp_path) == expected


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_what_the_starter_left_closed_is_not_missed(tmp_path, closed):
    assert run_process(f"kcl-mld missing.properties {closed}", tmp_path) == (2, "")
    assert run_process(f"kcl-mld --version {closed}", tmp_path) == (0, "")


# --- print-command


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """The PATH finds a kcl-mld."""
    program = tmp_path / "kcl-mld"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize("option", ["-p", "--properties", "--props", "--prop"])
def test_the_command_line_is_printed_for_kclpys_flags(capsys, option):
    args = ["print-command", "--print_command", "--java", "/usr/bin/java", option, "a b.properties"]
    code, out, err = invoke(capsys, *args, "-c", "x.jar", "--path", "y.jar", "-l", "log.xml")
    assert code == 0
    assert out == "kcl-mld --properties 'a b.properties' --log-configuration log.xml\n"
    assert "not needed" in err


@pytest.mark.usefixtures("on_path")
def test_the_printed_command_needs_neither_java_nor_a_log_configuration(capsys):
    assert invoke(capsys, "print-command", "-p", "x") == (0, "kcl-mld --properties x\n", "")


def test_the_printed_command_can_be_run_where_the_path_does_not_find_kcl_mld(
    capsys, on_path, monkeypatch
):
    on_path.unlink()
    _, out, _ = invoke(capsys, "print-command", "-p", "x")
    beside = Path(sys.executable).with_name("kcl-mld")
    assert out == f"{beside} --properties x\n"
    monkeypatch.setattr(sys, "executable", str(on_path.parent / "python3"))
    _, out, _ = invoke(capsys, "print-command", "-p", "x")
    assert out == f"{sys.executable} -P -m kcl_mld --properties x\n"


@pytest.mark.usefixtures("on_path")
def test_a_class_path_is_not_needed(capsys):
    code, out, err = invoke(capsys, "print-command", "--print_classpath")
    assert (code, out) == (0, "")
    assert "no class path is needed" in err
    code, out, _ = invoke(
        capsys, "print-command", "--print_classpath", "--print_command", "-p", "x"
    )
    assert (code, out) == (0, "kcl-mld --properties x\n")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--print_command"], "Must provide arguments: --properties"),
        (["--sample"], "no installed sample"),
    ],
)
def test_a_command_without_a_file_is_not_printed(capsys, args, text):
    code, out, err = invoke(capsys, "print-command", *args)
    assert code == 2
    assert "kcl-mld --properties" not in out
    assert text in err


# --- properties


def test_the_list_of_properties_is_the_shipped_one(capsys):
    code, out, _ = invoke(capsys, "properties")
    assert code == 0
    assert out == (Path(__file__).parents[3] / "properties" / "KEYS.md").read_text()


_INTERRUPTED = """
import os, signal, sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupted())
import kcl_mld.cli
"""


def test_ctrl_c_while_modules_load_shows_no_traceback():
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGINT  # 130 for a shell
    assert ended.stderr == ""


def test_afterwards_ctrl_c_is_pythons_own():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
