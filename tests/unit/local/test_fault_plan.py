"""Which requests a rule of the embedded AWS hits."""

import random
import time

import pytest

from kcl_mld.local.faultplan import FaultPlan, FaultRule


@pytest.mark.parametrize(
    ("off_s", "is_hit"), [(0, False), (-250, False), (250, False), (-350, True), (350, True)]
)
def test_a_rule_may_be_about_requests_that_are_signed_at_another_time(off_s, is_hit):
    plan = FaultPlan(random.Random(0))
    plan.replace([FaultRule(code="RequestTimeTooSkewed", signed_off_s=300.0)])
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + off_s))
    assert (plan.pick("kinesis", "GetRecords", b"", stamp) is not None) == is_hit
    assert plan.pick("kinesis", "GetRecords", b"") is None
