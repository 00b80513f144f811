"""A daemon that ``kcl-mld-java`` started beside a PySpark child, which needs a real Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kcl_mld.local.embedded import EmbeddedAws
from tests.process.daemon import Application
from tests.process.stand_in import java, program
from tests.spark.small_server import SMALL_SERVER

pytestmark = [pytest.mark.spark, pytest.mark.process]

STUB = Path(sys.executable).with_name("kcl-mld-spark")
PATIENCE_S = 180.0  # for one step, on a busy machine
APP = """\
from kcl_mld.spark import run
run(lambda df, ctx: df.select("sequence_number"))
"""


@pytest.fixture
def home(tmp_path):
    """A JAVA_HOME of the stand-in."""
    made = tmp_path / "home"
    subprocess.run([program(tmp_path), "--home", made], check=True, capture_output=True)
    return made


@pytest.fixture
def start(tmp_path, home):
    """Starts the daemon as a launcher would that has our JAVA_HOME."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "rows").mkdir()
    with EmbeddedAws(options=("--create-s", "0.1")) as aws:
        app = Application(aws, "java-stand-in", tmp_path)
        app.create_stream(1)
        app.put(5)

        def started(**keys):
            return app.start(
                launcher=java("$JAVA_HOME/bin/java"),
                executable=(str(STUB), str(tmp_path / "app.py")),
                environment={"JAVA_HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"},
                **{
                    **SMALL_SERVER,
                    "spark.sink.path": str(tmp_path / "rows"),
                    "spark.master": "local[1]",
                    "spark.batch.maxDelay": "500ms",
                },
                **keys,
            )

        yield started
        app.kill_all()


def rows(folder):
    """How many are in the table."""
    return len(DeltaTable(folder).to_pyarrow_table()) if DeltaTable.is_deltatable(folder) else 0


def test_the_child_finds_a_real_java(start, tmp_path):
    run = start()
    assert run.wait_for(lambda _: rows(str(tmp_path / "rows")) == 5, PATIENCE_S), run.output
    assert run.stop() == 0, run.output


def test_a_child_whose_java_is_the_stand_in_says_so(start, home):
    run = start(**{"spark.java.home": str(home)})
    assert run.ends() == 1, run.output
    said = f"spark.java.home names {home}, which is kcl-mld-java, which starts the daemon"
    assert said in run.output
