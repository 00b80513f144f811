"""Targets of the contract suite and what is known to differ on them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kcl_mld.local.embedded import EmbeddedAws
from tests import tracing
from tests.contract.divergences import KNOWN
from tests.contract.table_targets import (
    DynamoDbLocalTables,
    EmbeddedTables,
    InProcessTables,
    TableTarget,
)
from tests.contract.targets import (
    Botocore,
    InProcessDynamoDb,
    InProcessKinesis,
    Target,
    client_for,
    embedded_kinesis,
)
from tests.emulators import (
    CONTROLLED_DYNAMODB_LOCAL,
    DYNAMODB_LOCAL,
    KINESIS_LOCAL,
    Emulator,
    Kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/contract" in item.path.as_posix():
            item.add_marker(pytest.mark.contract)


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedAws]:
    aws = EmbeddedAws(options=("--create-s", "0.5", "--reshard-s", "0.5"))
    with tracing.off():  # what it does is shown by unit/local/test_process
        aws.start()
    try:
        yield aws
    finally:
        aws.stop()


def _emulator(kind: Kind) -> Iterator[Emulator]:
    if os.environ.get("KCL_MLD_EMULATORS") == "1":
        kind.fetch_if_missing()
    if reason := kind.missing():
        pytest.skip(reason)
    with Emulator(kind) as emulator:
        yield emulator


@pytest.fixture(scope="session")
def kinesis_local() -> Iterator[Emulator]:
    yield from _emulator(KINESIS_LOCAL)


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[Emulator]:
    yield from _emulator(DYNAMODB_LOCAL)


@pytest.fixture(params=["model", "http", "kinesis-local"])
def kinesis(request: pytest.FixtureRequest) -> Target:
    _expect_divergence(request)
    if request.param == "model":
        return InProcessKinesis()
    if request.param == "http":
        return embedded_kinesis(request.getfixturevalue("embedded"))
    emulator = request.getfixturevalue("kinesis_local")
    return Botocore("kinesis-local", client_for(emulator.url, "kinesis"))


@pytest.fixture(params=["fake", "moto", "dynamodb-local"])
def dynamodb(request: pytest.FixtureRequest) -> Target:
    _expect_divergence(request)
    if request.param == "fake":
        return InProcessDynamoDb()
    if request.param == "moto":
        url = request.getfixturevalue("embedded").moto_url
    else:
        url = request.getfixturevalue("dynamodb_local").url
    return Botocore(request.param, client_for(url, "dynamodb"))


@pytest.fixture(scope="session")
def controlled_dynamodb_local() -> Iterator[Emulator]:
    yield from _emulator(CONTROLLED_DYNAMODB_LOCAL)


@pytest.fixture(params=["model", "http", "dynamodb-local"])
def table_streams(request: pytest.FixtureRequest) -> TableTarget:
    _expect_divergence(request)
    if request.param == "model":
        return InProcessTables()
    if request.param == "http":
        return EmbeddedTables(request.getfixturevalue("embedded"))
    return DynamoDbLocalTables(request.getfixturevalue("controlled_dynamodb_local").url)


def _expect_divergence(request: pytest.FixtureRequest) -> None:
    """A listed divergence must show: the day it is gone its row goes too."""
    name = getattr(request.node, "originalname", request.node.name)
    case = request.node.callspec.id.removeprefix(request.param).removeprefix("-")
    reason = KNOWN.get((request.param, name)) or KNOWN.get((request.param, f"{name}[{case}]"))
    if reason:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
