"""The whole way in places that differ from a developer's: another user, a schema registry."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kcl_mld.local.embedded import EmbeddedAws
from tests.fakes.schema_frames import ORDER_AVRO, avro, frame
from tests.process.daemon import Application
from tests.process.test_daemon_schemas import Registry
from tests.spark.jars import WHY_NOT, avro_jar
from tests.spark.small_server import SMALL_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.process.daemon import Running

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.proof]

PATIENCE_S = 180.0  # for one step, on a busy machine
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
#: What a Python without this environment needs to find the packages of this one.
PACKAGES = {
    "PYTHONPATH": os.pathsep.join(
        [
            str(Path(__file__).resolve().parents[2] / "src"),
            *(p for p in sys.path if "site-packages" in p),
        ]
    )
}
STUB = (sys.executable, "-m", "kcl_mld.spark.stub")
UNIVERSAL = """\
import contextlib
import json
import os
from pyspark.sql import functions as F
from kcl_mld.spark import run

def process(df, ctx):
    user = F.udf(lambda number: f"{number} {os.getuid()}", "string")  # in a Python worker
    return df.select(user(F.decode("data", F.lit("UTF-8"))).alias("value"))

run(process)
"""
ORDERS = """\
import sys
from kcl_mld.spark import run, schema_definition

def process(df, ctx):
    for row in df.select("schema_version_id").distinct().collect():
        print("definition:", schema_definition(row[0]))
    return df.select("id", "customer", "lines", "schema_name", "data_format")

run(process, schema=SCHEMA, decoder=DECODER)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder below which any user may go."""
    made = Path(tempfile.mkdtemp(prefix="kcl-mld-place-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def new_app(place: Path) -> Iterator[Callable[[str], Application]]:
    """Makes an application of one shard; every worker that it started is gone afterwards."""
    with EmbeddedAws(options=("--create-s", "0.1")) as aws:
        made: list[Application] = []

        def make(name: str) -> Application:
            made.append(Application(aws, name, place))
            made[-1].create_stream(1)
            return made[-1]

        yield make
        for app in made:
            app.kill_all()


def properties(output: Path, **more: str) -> dict[str, str]:
    """Of a small server."""
    return {
        **SMALL_SERVER,
        "spark.master": "local[1]",
        "spark.sink.path": str(output),
        "spark.batch.maxDelay": "500ms",
        **more,
    }


def values(output: Path, *columns: str) -> Counter[tuple[object, ...]]:
    """How often each row is in a Delta table, whose cells are shown by ``repr``."""
    if not DeltaTable.is_deltatable(str(output)):
        return Counter()
    table = DeltaTable(output).to_pyarrow_table(columns=list(columns))
    return Counter(tuple(map(repr, row.values())) for row in table.to_pylist())


def wait_for_rows(run: Running, output: Path, count: int, *columns: str) -> None:
    assert run.wait_for(lambda _: values(output, *columns).total() >= count, PATIENCE_S), run.output


def nobodys_python(place: Path) -> str | None:
    """A Python of this version that another user can run, with our packages; None = there is none.

    Ours may lie in a home that is closed to others, while the system's is not.
    """
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return None
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    check = "import os, sys, kcl_mld, pyspark, deltalake; sys.exit(not os.access(sys.executable, os.X_OK))"
    for program in (sys.executable, f"/usr/bin/{version}"):
        command = [*AS_NOBODY, program, "-c", check]
        environ = {**os.environ, **PACKAGES}
        with contextlib.suppress(OSError):
            if not subprocess.run(
                command, cwd=place, env=environ, capture_output=True, check=False
            ).returncode:
                return program
    return None


def test_a_user_who_is_not_root_needs_a_home_and_a_directory_for_the_table(
    place: Path, new_app: Callable[[str], Application]
) -> None:
    if (python := nobodys_python(place)) is None:
        pytest.skip("this user can't become another one that can read Python and its packages")
    app = new_app("nobody")
    home, temporary, output = (place / name for name in ("home", "temporary", "rows"))
    for each in (home, temporary, output):
        each.mkdir(mode=0o700)
        os.chown(each, NOBODY, NOBODY)
    program = place / "app.py"
    program.write_text(UNIVERSAL)
    app.put(40)
    run = app.start(
        executable=(python, "-m", "kcl_mld.spark.stub", str(program)),
        environment={
            **PACKAGES,
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "USER": "nobody",
            "LOGNAME": "nobody",
        },
        launcher=(
            *AS_NOBODY,
            "sh",
            "-c",
            'program=$1; shift 2; exec "$program" "$@"',
            "sh",
            python,
        ),
        **properties(output),
    )
    wait_for_rows(run, output, 40, "value")
    assert run.stop() == 0, run.output
    assert values(output, "value") == Counter((repr(f"{n} {NOBODY}"),) for n in range(40))
    assert {path.stat().st_uid for path in output.rglob("*")} == {NOBODY}
    # What the host lays down for a while is gone with it; the JVM may take a moment longer.
    ends_at = time.monotonic() + PATIENCE_S
    while left := [*temporary.glob("kcl-mld-spark-*")]:
        assert time.monotonic() < ends_at, left
        time.sleep(0.1)


@pytest.mark.parametrize("mode", ["decode", "pass"])
def test_avro_in_frames_of_a_registry_becomes_columns(
    mode: str, place: Path, new_app: Callable[[str], Application]
) -> None:
    """``decode`` needs no package of Spark; with ``pass`` Spark's own Avro reads the payload."""
    more = {"glueSchemaRegistry.enabled": "true", "glueSchemaRegistry.mode": mode}
    schema, decoder = "id bigint, customer string, lines array<string>", "json"
    if mode == "pass":
        if (jar := avro_jar()) is None:
            pytest.skip(WHY_NOT)
        more["spark.conf.spark.jars"] = str(jar)
        schema, decoder = json.dumps(ORDER_AVRO), "avro"
    app = new_app(f"orders-{mode}")
    registry = Registry(app)
    orders = [
        {"id": n, "customer": None if n % 3 else f"Ö {n}", "lines": [f"line {n}"] * (n % 4)}
        for n in range(30)
    ]
    for order in orders:
        data = frame(registry.avro, avro(ORDER_AVRO, order), compressed=bool(order["id"] % 2))
        app.kinesis.put_record(StreamName=app.name, Data=data, PartitionKey="k")
    program, output = place / "app.py", place / "rows"
    program.write_text(ORDERS.replace("SCHEMA", repr(schema)).replace("DECODER", repr(decoder)))
    run = app.start(executable=(*STUB, str(program)), **properties(output, **more))
    columns = ("id", "customer", "lines", "schema_name", "data_format")
    wait_for_rows(run, output, 30, *columns)
    assert run.stop() == 0, run.output
    assert values(output, *columns) == Counter(
        tuple(map(repr, (*order.values(), "orders", "AVRO"))) for order in orders
    )
    assert "definition: {" in run.output
