"""Fleets with Spark children under kill -9: nothing lost, doubled or left running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.chaos_test import judge

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("name", "seed"), [("parquet", 1), ("delta", 1), ("foreach", 1)])
def test_every_record_is_in_the_sink_once(name: str, seed: int, tmp_path: Path) -> None:
    judge(name, seed, tmp_path)
