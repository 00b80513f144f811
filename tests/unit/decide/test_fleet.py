"""Which fleets a worker refuses to join."""

import pytest

from mld.decide.fleet import (
    check_stream_mode,
    refuse_two_fleets,
    refuse_unreadable,
)
from mld.errors import UnservableFleet
from tests.fakes.lease_world import lease


def test_what_cannot_be_understood_is_refused():
    said = str(refuse_unreadable("Migration3.0", "cv is 'CLIENT_VERSION_4X', which is not known"))
    for expected in ("item Migration3.0", "CLIENT_VERSION_4X", "Keep the Java daemon"):
        assert expected in said


def test_two_fleets_with_one_set_of_leases_are_refused_with_what_to_do():
    said = str(refuse_two_fleets(["state", "leases"]))
    assert "tables state and leases" in said
    assert "Stop every worker that is older than 3.5" in said


MULTI_KEY = "123456789012:s1:1700000000:shardId-000000000000"


@pytest.mark.parametrize(
    "row",
    [lease(lease_key=MULTI_KEY, stream_identifier="123456789012:s1:1700000000"),
     lease(lease_key=MULTI_KEY)],
)  # fmt: skip
def test_rows_of_a_multi_stream_application_are_refused_in_single_stream_mode(row):
    with pytest.raises(UnservableFleet, match="rows of a multi-stream application"):
        check_stream_mode([lease(), row], is_multi_stream=False)
    check_stream_mode([row], is_multi_stream=True)


def test_rows_of_a_single_stream_application_are_refused_in_multi_stream_mode():
    with pytest.raises(UnservableFleet, match="rows of a single-stream application"):
        check_stream_mode([lease()], is_multi_stream=True)
    check_stream_mode([lease()], is_multi_stream=False)
    check_stream_mode([], is_multi_stream=False)
