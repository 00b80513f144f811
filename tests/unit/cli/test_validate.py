"""kcl-mld validate: what is wrong, what holds and why, and nothing secret."""

import json
import sys
from pathlib import Path

import pytest

from kcl_mld.cli import dispatch, machine

GOOD = """executableName = ./app.py
applicationName = app
streamName = str
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
retrievalMode = POLLING
"""
PROPERTIES = Path(__file__).parents[3] / "properties"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in (
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_KINESIS",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def validate(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text("#!/bin/sh\n")
    Path("app.py").chmod(0o755)

    def run(text, *options):
        Path("f").write_text(text)
        code = dispatch(["validate", "f", *options])
        return code, capsys.readouterr().out

    return run


def line_of(out, key):
    return next(line.split(None, 1)[1] for line in out.splitlines() if line.startswith(f"{key} "))


def test_a_good_file_passes_with_every_value_and_its_origin(validate):
    code, out = validate(GOOD)
    assert code == 0
    assert out.startswith("f: no errors or warnings\n")
    assert line_of(out, "streamName").split() == ["str", "f:3"]
    assert line_of(out, "failoverTimeMillis").split() == ["10000", "default"]
    assert line_of(out, "tableName").endswith("derived from applicationName")
    assert "workerMetricsBillingMode" not in out


def test_properties_without_effect_are_shown_when_asked_for(validate):
    _, out = validate(GOOD, "--all")
    said = line_of(out, "workerMetricsBillingMode")
    assert said.endswith("default; accepted, has no counterpart here")


def test_an_advanced_property_is_shown_where_it_is_set_or_asked_for(validate):
    name = "metricsMaxQueueSize"
    assert name not in validate(GOOD)[1]
    assert line_of(validate(GOOD, "--all")[1], name).endswith("default; advanced")
    assert line_of(validate(f"{GOOD}{name} = 5\n")[1], name).endswith("f:7; advanced")


def test_a_warning_is_enough_to_fail(validate):
    code, out = validate(GOOD + "fooBar = 1\n")
    assert code == 2
    assert "f: 1 warning\n  f:7: warning: fooBar: not a property" in out


def test_a_remark_is_not_enough_to_fail(validate):
    code, out = validate(GOOD + "childFailurePolicy = restart\n")
    assert code == 0
    assert out.startswith("f: 1 info\n")


def test_an_error_comes_with_its_line_and_what_to_write(validate):
    code, out = validate(GOOD + "timeoutInSeconds = 0\n")
    assert code == 2
    assert "f:7: error: timeoutInSeconds: 0, but the smallest value that works is 1" in out
    assert "write timeoutInSeconds = 1 or more" in out


def test_a_broken_file_is_said_to_be(capsys, tmp_path):
    path = tmp_path / "x"
    path.write_text("a = \\u12\n")
    assert dispatch(["validate", str(path)]) == 2
    assert f"{path}:1: Malformed" in capsys.readouterr().err
    assert dispatch(["validate", str(path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["valid"] is False


def test_json_holds_findings_and_settings(validate):
    code, out = validate(GOOD + "maxLeasesForWorker = x\n", "--json")
    found = json.loads(out)
    assert code == 2
    assert found["valid"] is True
    (finding,) = found["findings"]
    assert (finding["severity"], finding["line"], finding["key"]) == (
        "warning",
        7,
        "maxLeasesForWorker",
    )
    assert found["settings"]["maxLeasesForWorker"] == {
        "value": "2147483647",
        "origin": "default (f:7 unset)",
        "effect": "effective",
    }
    effect = found["settings"]["workerMetricsBillingMode"]["effect"]
    assert effect == "accepted, has no counterpart here"


@pytest.mark.parametrize("options", [[], ["--json"], ["--all"]])
def test_no_secret_is_printed(validate, monkeypatch, options):
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", "http://me:geheim@x")
    text = GOOD.replace(
        "DefaultCredentialsProvider", "StsAssumeRoleCredentialsProvider|a|b|externalId=geheim"
    )
    text += (
        "secret = geheim\nworkerId = AKIAIOSFODNN7EXAMPLE\ndynamoDBEndpoint = http://u:geheim@x\n"
    )
    text += "metricsLevel = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n"
    text += "cloudWatchEndpoint = x?token=geheim\n"
    _, out = validate(text, *options)
    assert "geheim" not in out
    assert "AKIA" not in out
    assert "wJalr" not in out
    assert "****" in out


def test_region_and_endpoints_of_the_environment_are_shown(validate, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:1")
    _, out = validate(GOOD.replace("regionName", "#"))
    assert line_of(out, "regionName").endswith("environment AWS_REGION")
    assert line_of(out, "dynamoDBEndpoint").endswith("environment AWS_ENDPOINT_URL")


def test_an_arn_is_compared_with_the_region_of_the_environment(validate, monkeypatch):
    arn = "streamArn = arn:aws:kinesis:us-east-1:123456789012:stream/str\n"
    text = GOOD.replace("regionName", "#") + arn
    assert validate(text)[0] == 0
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    code, out = validate(text)
    assert code == 2
    assert "f: error: streamArn: the ARN names str in us-east-1" in out
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert validate(text)[0] == 0


def test_a_region_that_nobody_knows_is_a_warning_unless_an_endpoint_is_named(validate):
    code, out = validate(GOOD.replace("us-east-1", "us-esat-1"))
    assert code == 2
    assert "f:5: warning: regionName: this botocore knows no region us-esat-1" in out
    similar = next(line for line in out.splitlines() if "similar: " in line)
    assert "us-east-1" in similar
    assert "update boto3" in validate(GOOD.replace("us-east-1", "xx-nowhere-9"))[1]
    text = GOOD.replace("us-east-1", "us-esat-1") + "kinesisEndpoint = http://localhost:4566\n"
    assert validate(text)[0] == 0


def test_control_characters_do_not_reach_the_terminal(validate):
    code, out = validate(GOOD + "fo\\u001bo = \\u001b[2J\nworkerId = \\ud83d\\u0007\n")
    assert code == 2
    assert "\x1b" not in out
    assert "\\x1b" in out
    assert line_of(out, "workerId").startswith("\\ud83d\\x07")


@pytest.mark.parametrize("name", ["sample.properties", "local.properties", "spark.properties"])
def test_the_shipped_samples_are_good(capsys, name):
    assert dispatch(["validate", "--file-only", str(PROPERTIES / name)]) == 0
    assert ": warning:" not in capsys.readouterr().out


def test_every_commented_line_of_the_sample_is_good_too(validate):
    text = (PROPERTIES / "sample.properties").read_text()
    lines = [
        line.removeprefix("#") for line in text.splitlines() if not line.startswith(("# ", "#\n"))
    ]
    code, out = validate("\n".join(lines), "--file-only")
    assert code == 0, out


def test_the_program_is_looked_for_and_an_error_names_its_line(validate):
    code, out = validate(GOOD.replace("./app.py", "app.py"))
    assert code == 2
    assert "f:1: error: executableName: app.py is not found in PATH\n" in out
    assert "./app.py is here: write executableName = ./app.py" in out
    code, out = validate(GOOD.replace("./app.py", "app.py"), "--json")
    assert json.loads(out)["valid"] is False
    assert validate(GOOD.replace("./app.py", "app.py"), "--file-only")[0] == 0
    assert validate(GOOD.replace("./app.py", ""))[1].count("executableName: ") == 1


def test_a_program_is_looked_for_from_the_working_directory(validate, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    validate(GOOD)
    monkeypatch.chdir("elsewhere")
    _, out = validate(GOOD)
    assert "./app.py does not exist (relative to the working directory " in out
    assert dispatch(["validate", "../f"]) == 2


@pytest.fixture
def gone(tmp_path, monkeypatch):
    """The working directory was deleted."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    yield
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize(
    ("program", "severity"),
    [
        ("./app.py", "error"),
        (f"{sys.executable} app.py", "error"),
        (sys.executable, "warning"),
        (f"{sys.executable} {__file__}", "warning"),
    ],
)
def test_a_working_directory_that_is_gone_is_told(tmp_path, capsys, program, severity):
    (tmp_path / "f").write_text(GOOD.replace("./app.py", program))
    assert dispatch(["validate", str(tmp_path / "f")]) == 2
    told = f"{severity}: executableName: the working directory is gone"
    assert told in capsys.readouterr().out


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize("command", [["validate", "f"], ["leases", "list", "f"]])
def test_no_file_is_looked_for_in_a_directory_that_is_gone(capsys, command):
    assert dispatch(command) == 2
    assert "the working directory is gone: start again" in capsys.readouterr().err


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize("kind", ["child", "daemon"])
def test_no_conformance_is_tested_in_a_directory_that_is_gone(capsys, kind):
    assert dispatch(["conform", kind, "--", "true", "{properties}"]) == 2
    assert "the working directory is gone: start again" in capsys.readouterr().err


@pytest.fixture
def profiles(tmp_path, monkeypatch):
    (tmp_path / "credentials").write_text("[dev]\naws_access_key_id = x\n")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "credentials"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)


def test_a_profile_is_looked_for(validate, profiles, monkeypatch):
    name = "AwsCredentialsProvider = ProfileCredentialsProvider"
    text = GOOD.replace("AwsCredentialsProvider = DefaultCredentialsProvider", f"{name}|%s")
    assert validate(text % "dev")[0] == 0
    code, out = validate(text % "prod")
    assert code == 2
    assert "f:4: warning: AwsCredentialsProvider: this machine has no profile 'prod'" in out
    assert "known: dev" in out
    assert validate(text % "prod", "--file-only")[0] == 0
    monkeypatch.setenv("AWS_PROFILE", "other")
    code, out = validate(text % "dev")
    assert "f:4: error: AwsCredentialsProvider: the AWS configuration cannot be used" in out
    monkeypatch.delenv("AWS_PROFILE")
    Path("credentials").write_text("")
    assert "the AWS files here name none" in validate(text % "dev")[1]


def test_the_keys_of_spark_are_shown_with_masked_secrets(validate):
    code, out = validate(
        f"{GOOD}spark.sink = delta\nspark.sink.options.password = hunter2\nspark.sink.path = rows\n"
    )
    assert code == 0
    assert "hunter2" not in out
    assert line_of(out, "spark.sink").split() == ["delta", "f:7"]
    assert line_of(out, "spark.sink.options.password").split() == ["****", "f:8"]
    assert line_of(out, "spark.master").split() == ["local[*]", "default"]


def test_a_bad_value_for_spark_is_an_error(validate):
    code, out = validate(f"{GOOD}spark.sink = delt\n")
    assert code == 2
    assert "f:7: error: spark.sink: 'delt' is not one of" in out


def test_the_package_that_decodes_is_looked_for(validate, monkeypatch):
    decode = "glueSchemaRegistry.enabled = true\nglueSchemaRegistry.mode = decode\n"
    code, out = validate(GOOD + decode)
    assert (code, "fastavro" in out) == (0, False)
    monkeypatch.setattr(machine, "find_spec", lambda _name: None)
    code, out = validate(GOOD + decode)
    assert code == 2
    assert "f:8: error: glueSchemaRegistry.mode: decode needs the package fastavro" in out
    assert "pip install 'kcl-mld[schemas]'" in out
    assert validate(GOOD + decode.replace("decode", "pass"))[0] == 0


MANY = GOOD.replace("streamName = str", "multiStream = true\nstreams = orders, clicks")


def test_the_program_of_each_stream_is_looked_for(validate):
    Path("orders.sh").write_text("#!/bin/sh\n")
    Path("orders.sh").chmod(0o755)
    own = "stream.*.executableName = ./{streamName}.sh {shardId}\n"
    code, out = validate(MANY + own)
    assert code == 2
    assert out.count("error: ") == 1
    assert "f:8: error: stream.*.executableName: ./clicks.sh" in out
    code, out = validate(MANY + own.replace("*", "orders"))
    assert code == 0
    assert line_of(out, "streams").startswith("orders, clicks")


def test_the_index_of_a_child_is_filled_in_where_a_shard_has_several(validate):
    text = GOOD.replace("./app.py", "./app{childIndex}.py")
    assert "./app{childIndex}.py does not exist" in validate(text)[1]
    Path("app.py").rename("app0.py")
    code, out = validate(text + "childrenPerShard = 2\n")
    assert (code, out.count("error: ")) == (0, 0)
    several = MANY.replace("./app.py", "./app{childIndex}.py")
    assert validate(several + "stream.*.childrenPerShard = 2\n")[0] == 0
    code, out = validate(several + "stream.orders.childrenPerShard = 2\n")
    assert (code, out.count("error: ")) == (2, 1)


def test_streams_are_compared_with_the_region_of_the_environment(validate, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
    text = MANY.replace("orders,", f"{arn},").replace("regionName", "#regionName")
    code, out = validate(text)
    assert code == 2
    assert "streams: " + arn + " is in us-east-1, but the Kinesis client is in eu-west-1" in out


@pytest.fixture
def spark_program(tmp_path, monkeypatch):
    """A folder in PATH with something that is called kcl-mld-spark."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kcl-mld-spark").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "kcl-mld-spark").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


@pytest.mark.usefixtures("spark_program")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("spark.sink.path = app.py/x", "f:8: ERROR: spark.sink.path: app.py/x ("),
        (
            "spark.sink = delta",
            "f: ERROR: spark.sink.path: is missing: the delta sink writes there\n",
        ),
        (
            "spark.sink = merge",
            "f: ERROR: spark.sink.path: is missing: the merge sink writes there\n",
        ),
        ("spark.sink.path = out\nspark.remote = host:15002", "spark.remote: must begin with sc://"),
        (
            "spark.sink.path = out\nspark.decoder.schema = flights.avsc",
            "f:9: ERROR: spark.decoder.schema: flights.avsc is the name of a file",
        ),
    ],
)
def test_what_spark_could_not_use_is_found_before_it_starts(validate, lines, expected):
    text = GOOD.replace("./app.py", "kcl-mld-spark app.py") + "# spark\n" + lines + "\n"
    code, out = validate(text)
    assert code == 2
    assert expected in out.replace("error", "ERROR")


@pytest.mark.usefixtures("spark_program")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("kcl-mld-spark", "kcl-mld-spark is given no app"),
        ("kcl-mld-spark --properties", "--properties names no file"),
        ("kcl-mld-spark gone.py", "the app gone.py is not there or can't be read (relative to"),
        ("kcl-mld-spark --properties gone app.py", "the properties file gone is not there"),
        ("kcl-mld-spark --properties f /gone.py", "the app /gone.py is not there or can't be read"),
        ("kcl-mld-spark bin", "the app bin is a directory"),
    ],
)
def test_the_app_of_a_spark_child_is_looked_for(validate, command, expected):
    code, out = validate(GOOD.replace("./app.py", command))
    assert code == 2
    assert expected in out
    fine = GOOD + "spark.sink.path = out\n"
    assert validate(fine.replace("./app.py", "kcl-mld-spark --properties f app.py"))[0] == 0


def test_keys_for_a_spark_program_of_the_users_own_are_not_judged(validate):
    assert validate(GOOD + "spark.conf.spark.ui.enabled = true\n")[0] == 0


def test_a_setting_of_the_command_line_is_shown_with_its_origin(validate, monkeypatch):
    monkeypatch.setenv("KCL_MLD_SET", "tableName=of-environment\nfailoverTimeMillis=20000")
    code, out = validate(GOOD, "--set", "tableName=typed", "--set", "streamName = other")
    assert code == 0
    assert line_of(out, "tableName").split() == ["typed", "--set"]
    assert line_of(out, "streamName").split() == ["other", "--set"]
    assert line_of(out, "failoverTimeMillis").split() == ["20000", "KCL_MLD_SET"]


def test_an_expanded_value_is_shown_by_its_origin_only(validate, monkeypatch):
    monkeypatch.setenv("WHERE", "eu-west-1")
    monkeypatch.setenv("KEEPER", "hunter2")
    text = GOOD.replace("us-east-1", "${WHERE}") + "processingLanguage = ${KEEPER}\n"
    code, out = validate(text, "--expand-env")
    assert code == 0
    assert line_of(out, "regionName").split() == ["${WHERE}", "f:5,", "environment", "WHERE"]
    assert line_of(out, "processingLanguage").split()[0] == "${KEEPER}"
    assert "hunter2" not in out
    assert "eu-west-1" not in out


def test_an_unset_variable_exits_with_2_and_names_file_line_and_key(validate, capsys, monkeypatch):
    monkeypatch.setenv("KCL_MLD_EXPAND_ENV", "true")
    Path("f").write_text(GOOD.replace("= str", "= ${NO_SUCH_STREAM}"))
    assert dispatch(["validate", "f"]) == 2
    assert "f:3: error: streamName: the environment has no variable NO_SUCH_STREAM" in (
        capsys.readouterr().err
    )


def test_a_region_that_is_put_in_is_judged_without_showing_it(validate, monkeypatch):
    monkeypatch.setenv("WHERE", "eu-west-7")
    code, out = validate(GOOD.replace("us-east-1", "${WHERE}"), "--expand-env")
    assert code == 2
    assert "this botocore knows no region ${WHERE}" in out
    assert "eu-west-7" not in out


@pytest.mark.parametrize(
    "setting",
    [
        "spark.sink.options.password=hunter2",
        "kinesisEndpoint=https://me:hunter2@example.org",
        "processingLanguage=AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_a_secret_is_refused_on_the_command_line(validate, capsys, setting):
    Path("f").write_text(GOOD)
    assert dispatch(["validate", "f", "--set", setting]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"--set: {setting.partition('=')[0]}: the value looks like a secret")
    assert "hunter2" not in err
    assert "AKIA" not in err
