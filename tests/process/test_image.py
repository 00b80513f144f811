"""The image is built as its page says, and a container of it does what the page promises."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import kclpy_cache
from tests.checkout import ROOT, copy_checkout
from tests.page_commands import blocks_of
from tests.process import image_kit
from tests.process.image_kit import (
    Container,
    Image,
    ImageStore,
    children_of,
    compilers_in,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcl_mld.local.embedded import EmbeddedAws

# One worker, as the images are built once.
pytestmark = [pytest.mark.process, pytest.mark.untraced, pytest.mark.xdist_group("image")]
PAGE = "docs/image.md"
CONTAINERFILE = ROOT / "packaging/image/Containerfile"
NOTICE = ROOT / "packaging/image/NOTICE"
#: Starts a kclpy program, and leaves a process behind that ends a moment later.
LEAVES_ORPHAN = "#!/bin/sh\n(sleep 5 &)\nexec python3 hello_app.py\n"
SPARK_APP = """\
from kcl_mld.spark import run


def process(df, ctx):
    return df.selectExpr("partition_key", "CAST(data AS STRING) AS text")


run(process)
"""
SPARK_PROPERTIES = """\
executableName = kcl-mld-spark app.py
spark.sink.path = /data/rows
applicationName = rows
streamName = rows
AwsCredentialsProvider = DefaultCredentialsProvider
initialPositionInStream = TRIM_HORIZON
retrievalMode = POLLING
spark.batch.maxDelay = 1s
"""


def typed_lines() -> set[str]:
    """The commands of the page of which it says that they are typed here, without comments."""
    blocks = [block for block in blocks_of(PAGE) if "test_image.py" in (block.reason or "")]
    lines = [line for block in blocks for line in block.commands.splitlines()]
    return {line.partition("#")[0].strip() for line in lines}


def file_of_page(name: str) -> str:
    """A file that the page shows."""
    (text,) = (
        block.commands.split("\n", 1)[1].rpartition("END OF FILE")[0]
        for block in blocks_of(PAGE)
        if block.marks.get("file") == name
    )
    return text


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# -- what needs no image --------------------------------------------------------------------------


def test_what_the_page_says_is_typed_here_is() -> None:
    assert typed_lines() == {"make image", "make image VARIANT=spark", "docker build --tag hello ."}


def test_a_compiler_is_found(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/python3").touch()
    assert compilers_in(tmp_path) == []
    (tmp_path / "usr/bin/gcc-12").touch()
    (tmp_path / "opt/x/bin").mkdir(parents=True)
    (tmp_path / "opt/x/bin/cc").touch()
    assert compilers_in(tmp_path) == ["cc", "gcc-12"]


def unlicensed(root: Path) -> set[str]:
    """Python packages of a root that bring no license text."""
    found = set()
    for info in root.glob("opt/kcl-mld/lib/python3*/site-packages/*.dist-info"):
        files = [path.name.lower() for path in info.rglob("*") if path.is_file()]
        if not any(name.startswith(("licen", "copying", "notice")) for name in files):
            found.add(info.name.partition("-")[0])
    return found


def test_a_package_without_a_license_is_found(tmp_path: Path) -> None:
    site = tmp_path / "opt/kcl-mld/lib/python3.11/site-packages"
    for name, file in (("good-1.dist-info", "licenses/LICENSE"), ("bad-1.dist-info", "METADATA")):
        (site / name / file).parent.mkdir(parents=True)
        (site / name / file).touch()
    assert unlicensed(tmp_path) == {"bad"}


# -- images ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store() -> Iterator[ImageStore]:
    if reason := image_kit.missing():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="images-"))
    built = ImageStore(folder)
    try:
        try:
            built.make_base()
        except OSError as error:
            pytest.skip(str(error))
        yield built
    finally:
        built.close()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("image") / "checkout")


@pytest.fixture(scope="module")
def core(store: ImageStore, checkout: Path) -> Image:
    store.type("make image", checkout)
    return store.image("kcl-mld:core")


@pytest.fixture(scope="module")
def spark(store: ImageStore, core: Image, checkout: Path) -> Image:
    store.type("make image VARIANT=spark", checkout)
    return store.image("kcl-mld:spark")


@pytest.fixture(scope="module")
def hello(store: ImageStore, core: Image, tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("hello")
    for name in ("Containerfile", "app.properties"):
        (folder / name).write_text(file_of_page(name))
    shutil.copy(ROOT / "sample_apps/hello_app.py", folder)
    store.type("docker build --tag hello .", folder)
    return store.image("hello")


@pytest.mark.proof
def test_the_configuration_is_what_the_page_says(core: Image) -> None:
    config = core.config
    assert config["User"] == f"{image_kit.UID}:{image_kit.UID}"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "kcl-mld", "probe"]
    assert list(config["ExposedPorts"]) == ["8080/tcp"]
    assert (core.root / "usr/share/doc/kcl-mld/LICENSE").read_text() == (
        ROOT / "LICENSE"
    ).read_text()
    assert (core.root / "usr/share/doc/kcl-mld/NOTICE").read_text() == NOTICE.read_text()


def check_contents(image: Image) -> None:
    """No compiler, a license for each package, and nothing of pip's secret."""
    assert compilers_in(image.root) == []
    assert {name for name in unlicensed(image.root) if name not in NOTICE.read_text()} == set()
    assert list(image.root.glob("opt/kcl-mld/lib/python3*/site-packages/*.dist-info"))
    assert not (image.root / "etc/pip.conf").exists()


@pytest.mark.proof
def test_the_core_variant_has_nothing_that_it_should_not(core: Image) -> None:
    check_contents(core)
    assert not list(core.root.glob("opt/kcl-mld/lib/python3*/site-packages/pyspark"))


# -- containers -----------------------------------------------------------------------------------


class Stream:
    """A stream on the embedded AWS with records, and what a container needs to read it."""

    def __init__(self, aws: EmbeddedAws, name: str, texts: list[str]) -> None:
        self.kinesis = aws.client("kinesis")
        self.kinesis.create_stream(StreamName=name, ShardCount=1)
        self.kinesis.get_waiter("stream_exists").wait(StreamName=name)
        for text in texts:
            self.kinesis.put_record(StreamName=name, PartitionKey="en", Data=text.encode())
        self.name = name
        self.dynamodb = aws.client("dynamodb")
        self.variables = {
            **aws.environment,
            "KCL_MLD_HTTP": f"127.0.0.1:{free_port()}",
            "KCL_MLD_SET": f"streamName={name}\napplicationName={name}",
        }

    def checkpoints(self) -> list[str]:
        """The rows' numbers; empty without a table."""
        try:
            items = self.dynamodb.scan(TableName=self.name, ConsistentRead=True)["Items"]
        except self.dynamodb.exceptions.ResourceNotFoundException:
            return []
        found = [item["checkpoint"]["S"] for item in items if "checkpoint" in item]
        return [one for one in found if one.isdigit()]


@pytest.mark.proof
def test_a_worker_reads_records_answers_its_health_check_and_stops_with_0(
    hello: Image, aws: EmbeddedAws
) -> None:
    stream = Stream(aws, "image-hello", ["Hello"])
    with Container(hello, variables=stream.variables, scratch=False) as container:
        container.wait_for_text("en Hello")
        container.wait_for(stream.checkpoints, "a checkpoint")
        assert state_of(container.init)[0] == "tini"
        probe = hello.config["Healthcheck"]["Test"][1:]
        code, said = container.run(*probe)
        assert code == 0, said
        assert container.run(*probe, "--ready")[0] == 0
        code, said = container.run("id", "-u")
        assert (code, said) == (0, f"{image_kit.UID}\n")
        code, said = container.run("touch", "/app/x", "/tmp/x", "/var/x")
        assert (code, said.count("Read-only file system")) == (1, 3), said
        assert container.stop() == 0, container.output
        assert "Stopped: all children were notified" in container.output


@pytest.mark.proof
def test_the_health_check_notices_a_daemon_that_hangs(hello: Image, aws: EmbeddedAws) -> None:
    stream = Stream(aws, "image-hangs", ["Hello"])
    with Container(hello, variables=stream.variables) as container:
        container.wait_for_text("en Hello")
        (daemon,) = children_of(container.init)
        os.kill(daemon, signal.SIGSTOP)
        code, said = container.run("kcl-mld", "probe")
        assert (code, "timed out" in said) == (1, True), said
        os.kill(daemon, signal.SIGCONT)
        container.wait_for(lambda: container.run("kcl-mld", "probe")[0] == 0, "it answers again")


@pytest.mark.proof
@pytest.mark.parametrize("has_init", [True, False], ids=["tini", "without"])
def test_an_orphan_is_reaped_by_the_init_alone(
    has_init: bool, hello: Image, aws: EmbeddedAws, tmp_path: Path
) -> None:
    stream = Stream(aws, f"image-orphan-{has_init}", ["Hello"])
    stream.variables["KCL_MLD_SET"] += "\nexecutableName=./leaves_orphan.sh"
    for name in ("app.properties", "hello_app.py"):
        shutil.copy(hello.root / "app" / name, tmp_path)
    (tmp_path / "leaves_orphan.sh").write_text(LEAVES_ORPHAN)
    (tmp_path / "leaves_orphan.sh").chmod(0o755)
    tmp_path.chmod(0o755)
    entrypoint = None if has_init else ["kcl-mld"]
    with Container(
        hello, entrypoint=entrypoint, variables=stream.variables, volumes={tmp_path: "/app"}
    ) as container:
        container.wait_for_text("en Hello")

        def orphans() -> list[str]:
            states = map(state_of, children_of(container.init))
            return [state for name, state in states if name == "sleep"]

        container.wait_for(lambda: "Z" in orphans() or not orphans(), "the orphan ends")
        assert orphans() == ([] if has_init else ["Z"])
        assert container.stop() == 0, container.output


@pytest.mark.proof
def test_a_program_in_node_reads_records(
    store: ImageStore, core: Image, aws: EmbeddedAws, tmp_path: Path
) -> None:
    modules = kclpy_cache.aws_kcl()
    if modules is None:
        pytest.skip("npm's aws-kcl cannot be had")
    shutil.copytree(modules, tmp_path / "node_modules")
    shutil.copy(ROOT / "tests/data/node/app.js", tmp_path)
    text = file_of_page("app.properties").replace("python3 hello_app.py", "node app.js")
    (tmp_path / "app.properties").write_text(text)
    (tmp_path / "Containerfile").write_text(file_of_page("Containerfile.node"))
    store.type("docker build --tag hello .", tmp_path)
    stream = Stream(aws, "image-node", ["Hello"])
    with Container(store.image("hello"), variables=stream.variables, scratch=False) as container:
        container.wait_for(stream.checkpoints, "a checkpoint")
        assert container.stop() == 0, container.output


# -- spark ----------------------------------------------------------------------------------------


@pytest.mark.proof
def test_the_spark_variant_writes_records_into_a_delta_table(
    spark: Image, aws: EmbeddedAws, tmp_path: Path
) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415 - slow

    check_contents(spark)
    stream = Stream(aws, "image-spark", ["one", "two", "three"])
    app, data = tmp_path / "app", tmp_path / "data"
    app.mkdir()
    (app / "app.py").write_text(SPARK_APP)
    (app / "app.properties").write_text(SPARK_PROPERTIES)
    data.mkdir()
    for folder in (tmp_path, app):
        folder.chmod(0o755)
    data.chmod(0o777)
    volumes = {app: "/app", data: "/mnt"}
    stream.variables["KCL_MLD_SET"] += "\nspark.sink.path=/mnt/rows"
    with Container(spark, variables=stream.variables, volumes=volumes) as container:
        container.wait_for(stream.checkpoints, "a checkpoint")
        rows = DeltaTable(str(data / "rows")).to_pyarrow_table().to_pylist()
        assert sorted(row["text"] for row in rows) == ["one", "three", "two"]
        assert container.stop() == 0, container.output
