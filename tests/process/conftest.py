"""One embedded AWS for all tests of a run, without faults at the start of each, and one wheel."""

from __future__ import annotations

import itertools
import re
import sys
import sysconfig
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kcl_mld.local.embedded import EmbeddedAws
from tests import tracing
from tests.checkout import copy_checkout, run
from tests.emulators import CONTROLLED_DYNAMODB_LOCAL, DYNAMODB_LOCAL, Emulator
from tests.process.daemon import Application
from tests.process.table_streams import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Names of streams and tables differ within a run.
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def shared_aws() -> Iterator[EmbeddedAws]:
    aws = EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1"))
    with tracing.off():  # it serves every test, and has tests of its own
        aws.start()
    try:
        yield aws
    finally:
        aws.stop()


@pytest.fixture
def aws(shared_aws: EmbeddedAws) -> Iterator[EmbeddedAws]:
    yield shared_aws
    shared_aws.control(faults=[])


@pytest.fixture
def new_app(
    aws: EmbeddedAws, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Application]]:
    """Makes an application with a stream; every worker that it started is gone afterwards."""
    made: list[Application] = []
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name.removeprefix("test_"))[:60]

    def make(shards: int = 1, **properties: str) -> Application:
        app = Application(aws, f"{stem}-{next(_NUMBERS)}", tmp_path, **properties)
        if shards:
            app.create_stream(shards)
        made.append(app)
        return app

    yield make
    for app in made:
        app.kill_all()


@pytest.fixture(scope="module")
def dynamodb_local() -> Iterator[Emulator]:
    """With its test control; time and shards are those of all of its tables."""
    if not DYNAMODB_LOCAL.missing():
        CONTROLLED_DYNAMODB_LOCAL.fetch_if_missing()
    if reason := CONTROLLED_DYNAMODB_LOCAL.missing():
        pytest.skip(reason)
    with Emulator(CONTROLLED_DYNAMODB_LOCAL) as running:
        yield running


@pytest.fixture
def tables(aws: EmbeddedAws, tmp_path: Path) -> Iterator[Callable[[str, str], Table]]:
    """Makes a table on a server; its workers are gone afterwards."""
    made: list[Table] = []

    def make(url: str, name: str) -> Table:
        made.append(Table(aws, url, tmp_path, name))
        return made[-1]

    yield make
    for table in made:
        table.app.kill_all()


@pytest.fixture
def new_table(
    tables: Callable[[str, str], Table], dynamodb_local: Emulator
) -> Callable[[str], Table]:
    return partial(tables, dynamodb_local.url)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the checkout, which stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = copy_checkout(folder / "copy")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    # Without a setuptools that is new enough pip gets one.
    has_backend = int(metadata.version("setuptools").partition(".")[0]) >= 77
    options = ["--no-build-isolation"] if has_backend else []
    run(*pip, "wheel", "--no-deps", *options, "-w", folder, copy, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Path:
    """Folder of the scripts of a fresh environment: the wheel, and what it requires."""
    venv = wheel.parent / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, folder=wheel.parent)
    python = venv / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, folder=wheel.parent)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", where, folder=wheel.parent).strip())
    # An editable installation there is not seen from here.
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent
