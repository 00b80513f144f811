"""Launchers of the MultiLangDaemon start ``kcl-mld-java`` as they would start ``java``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kcl_mld.ops.rules.java_command import MAIN_CLASS, MAIN_CLASSES_1X
from kcl_mld_protocol.conform.daemon import SCRIPTED_CHILD
from tests.kclpy_cache import aws_kcl, kclpy
from tests.process.daemon import shard_id, wait_until
from tests.process.stand_in import by_shell, java, program

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process
#: Fleets of 2.x, whose tables have no item of their generation.
STAYS_2X = {"clientVersionConfig": "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"}


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    return program(tmp_path)


@pytest.fixture
def home(stand_in: Path, tmp_path: Path) -> Path:
    """A JAVA_HOME."""
    made = subprocess.run(
        [stand_in, "--home", tmp_path / "home"], capture_output=True, text=True, check=True
    )
    return Path(made.stdout.strip())


def reads(app: Application, run: Running) -> None:
    """Wait until all records were processed and checkpointed."""
    run.wait_for_actions("processRecords")
    assert run.wait_for(lambda _: app.items()[shard_id(0)]["checkpoint"].isdigit(), 120), run.output


def stops(run: Running) -> None:
    """Stop a daemon behind a launcher, which passes no signal on."""
    os.killpg(run.pid, signal.SIGTERM)
    wait_until(lambda: "Stopped: all children were notified" in run.output, "a clean stop")


def test_the_unmodified_helper_of_kclpy_starts_it(
    new_app: Callable[..., Application], stand_in: Path
) -> None:
    folder = kclpy()
    if folder is None:
        pytest.skip("amazon_kclpy cannot be fetched here")
    app = new_app()
    app.put(3)
    helper = folder / "samples" / "amazon_kclpy_helper.py"
    # As in the launcher's own page: what the helper prints is run.
    ask = (
        f'PYTHONPATH="{folder}" "{sys.executable}" "{helper}" --print_command --java "{stand_in}"'
        ' --properties "$FILE" -c /nowhere/more.jar'
    )
    run = app.start(launcher=by_shell(f"exec $({ask})"))
    reads(app, run)
    assert run.stop() == 0, run.output


def put_jars(package: Path, folder: Path) -> None:
    """Empty files for the jars that the bootstrap would download; it looks at their names only."""
    pom = ET.parse(package / "pom.xml").getroot()
    values = {
        f"${{{one.tag.rpartition('}')[2]}}}": str(one.text) for one in pom.find("{*}properties")
    }
    for one in pom.find("{*}dependencies"):
        name, version = (str(one.find(f"{{*}}{tag}").text) for tag in ("artifactId", "version"))
        (folder / f"{name}-{values.get(version, version)}.jar").touch()


@pytest.mark.parametrize("named_by", ["option", "JAVA_HOME"])
def test_the_unmodified_bootstrap_of_npm_starts_it(
    new_app: Callable[..., Application], stand_in: Path, home: Path, tmp_path: Path, named_by: str
) -> None:
    modules, node = aws_kcl(), shutil.which("node")
    if modules is None or node is None:
        pytest.skip("Node or aws-kcl is not available here")
    package = modules / "aws-kcl"
    jars = tmp_path / "jars"
    jars.mkdir()
    put_jars(package, jars)
    app = new_app()
    app.put(3)
    option = f'--java "{stand_in}"' if named_by == "option" else ""
    command = f'exec "{node}" "{package}/bin/kcl-bootstrap" {option} --jar-path "{jars}" -e'
    run = app.start(
        launcher=by_shell(f'{command} -p "$FILE"'),
        environment={
            "NODE_PATH": str(modules),  # the package was moved with what it needs
            "JAVA_HOME": "" if named_by == "option" else str(home),
        },
    )
    reads(app, run)
    assert "downloaded. 0 files remain." in run.stdout  # nothing was fetched
    stops(run)


#: Launcher -> the command line that it builds, which is not run itself here.
OTHERS = {
    # rake run properties_file=…
    "aws-kclrb": '"$JAVA_HOME/bin/java" -classpath jars/a.jar:samples '
    f'{MAIN_CLASS} --properties-file "$FILE"',
    # dotnet run … --execute, which asks for the version first
    ".NET": f'java -version && exec java -cp "jars/a.jar:$PWD" {MAIN_CLASS} -p app.properties',
    # amazon_kclpy_helper.py names the file alone up to 1.5, and its folder in the class path
    "a bare name": f'cd / && exec "$JAVA_HOME/bin/java" -cp "/a.jar:${{FILE%/*}}" {MAIN_CLASS}'
    " app.properties",
}


@pytest.mark.parametrize("launcher", OTHERS)
def test_the_command_line_of_another_launcher_starts_it(
    new_app: Callable[..., Application], home: Path, launcher: str
) -> None:
    app = new_app()
    app.put(3)
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    run = app.start(
        launcher=by_shell(OTHERS[launcher]), environment={"JAVA_HOME": str(home), "PATH": path}
    )
    reads(app, run)
    stops(run)


def test_options_of_the_jvm_count_are_told_or_refused(
    new_app: Callable[..., Application], stand_in: Path
) -> None:
    app = new_app()
    region, url = app.aws.region, app.aws.environment_for_child()["AWS_ENDPOINT_URL"]
    words = f"-Xmx512m -javaagent:/a.jar -Daws.endpointUrl={url} -Duser.timezone=UTC"
    without = {"AWS_ENDPOINT_URL": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": ""}
    tools = {"JAVA_TOOL_OPTIONS": f"-Daws.region={region}"}
    app.put(3)
    run = app.start(
        launcher=java(stand_in, words), environment={**without, **tools}, regionName=None
    )
    reads(app, run)
    assert "-javaagent has no effect: there is no JVM" in run.output
    assert "-Duser.timezone has no effect: there is no JVM" in run.output
    assert run.stop() == 0, run.output
    run = app.start(launcher=java(stand_in, "-Dhttps.proxyHost=proxy"))
    assert run.ends() == 2
    assert "set HTTPS_PROXY and NO_PROXY" in run.output


def test_children_do_not_get_a_java_home_that_is_no_java(
    new_app: Callable[..., Application], home: Path, tmp_path: Path
) -> None:
    app = new_app()
    app.put(3)
    seen = tmp_path / "seen"
    child = tmp_path / "child"
    child.write_text(
        f'#!/bin/sh\necho "${{JAVA_HOME-none}}" > {seen}\n'
        f'exec "{sys.executable}" "{SCRIPTED_CHILD}" "$JOURNAL/script.json"\n'
    )
    child.chmod(0o755)
    run = app.start(
        launcher=java(home / "bin" / "java"),
        environment={"JAVA_HOME": str(home)},
        executable=(str(child),),
    )
    reads(app, run)
    assert run.stop() == 0, run.output
    assert seen.read_text() == "none\n"


# -- in place of KCL 1.x


@pytest.mark.parametrize("main_class", MAIN_CLASSES_1X)
def test_a_daemon_of_1x_is_replaced_where_there_is_no_table_and_started_again(
    new_app: Callable[..., Application], stand_in: Path, main_class: str
) -> None:
    app = new_app()
    for _ in range(2):
        app.put(3)
        run = app.start(launcher=java(stand_in, main_class=main_class))
        reads(app, run)
        assert run.stop() == 0, run.output


def test_a_daemon_of_1x_is_not_replaced_beside_its_workers_until_the_file_says_that_they_stopped(
    new_app: Callable[..., Application], stand_in: Path
) -> None:
    app = new_app(**STAYS_2X)
    app.put(3)
    app.create_table()
    launcher = java(stand_in, main_class=MAIN_CLASSES_1X[0])
    run = app.start(launcher=launcher)
    assert run.ends() == 5
    assert "docs/migrating.md#in-place-of-kcl-1x" in run.output
    assert app.everything() == {}
    run = app.start(launcher=launcher, kcl1xWorkersStopped="true")
    reads(app, run)
    assert run.stop() == 0, run.output


def test_main_classes_of_2x_and_3x_ask_for_nothing(
    new_app: Callable[..., Application], stand_in: Path
) -> None:
    app = new_app(**STAYS_2X)
    app.put(3)
    app.create_table()
    run = app.start(launcher=java(stand_in))
    reads(app, run)
    assert run.stop() == 0, run.output
