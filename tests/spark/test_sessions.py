"""``ConnectSessions`` against a real server."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark


def test_a_session_answers_in_utc(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.range(10).select(F.sum("id")).first()[0] == 45
