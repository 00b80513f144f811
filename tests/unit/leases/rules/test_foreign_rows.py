"""Which rows no worker of an application works beside."""

import pytest

from kcl_mld.leases.model.lease_item import lease_to_item
from kcl_mld.leases.model.lease_move import staged
from kcl_mld.leases.rules.foreign_rows import foreign_rows
from tests.fakes.lease_rows import LEADER, METRICS, multi, single
from tests.fakes.lease_world import lease

MULTI_KEY = "123456789012:s1:1700000000:shardId-000000000000"
MULTI = multi(0)["leaseKey"]["S"]
MINE, OTHER = "123456789012:us-east-1:orders", "123456789012:us-east-1:clicks"


@pytest.mark.parametrize(
    "row",
    [
        multi(1),
        {"leaseKey": {"S": MULTI_KEY}},
        single(1, streamName={"S": "123456789012:s1:1700000000"}),
    ],
)
def test_rows_of_a_multi_stream_application_are_refused_in_single_stream_mode(row):
    why = foreign_rows([single(0), row], "app", is_multi_stream=False)
    assert "app has rows of a multi-stream application" in why
    assert row["leaseKey"]["S"] in why
    assert foreign_rows([row, LEADER, METRICS], "app", is_multi_stream=True) is None


def test_rows_of_a_single_stream_application_are_refused_in_multi_stream_mode():
    why = foreign_rows([single(0)], "app", is_multi_stream=True)
    assert "rows of a single-stream application (shardId-000000000000)" in why
    assert foreign_rows([single(0), LEADER, METRICS], "app", is_multi_stream=False) is None
    assert foreign_rows([], "app", is_multi_stream=False) is None


def test_what_has_no_counter_is_no_sign_of_a_single_stream():
    assert foreign_rows([{"leaseKey": {"S": "notes"}}], "app", is_multi_stream=True) is None


@pytest.mark.parametrize("is_multi_stream", [True, False])
def test_rows_on_their_way_to_other_keys_are_refused_in_either_mode(is_multi_stream):
    moving = staged(single(0), multi(0)["leaseKey"]["S"])
    why = foreign_rows([LEADER, moving], "app", is_multi_stream=is_multi_stream)
    assert why.startswith(f"1 row of the lease table app on the way to other keys ({MULTI})")
    assert "kcl-mld leases migrate" in why


def marked(number, mark):
    return lease_to_item(lease(number, stream_mark=mark))


def test_rows_of_another_stream_are_refused_with_the_rows_of_each_and_how_to_clear_them():
    rows = [single(0), marked(1, MINE), *(marked(number, OTHER) for number in range(2, 9))]
    why = foreign_rows(rows, "app", is_multi_stream=False, stream_mark=MINE)
    assert f"reads the stream {MINE}, but the lease table app has rows of another stream" in why
    listed = ", ".join(f"shardId-{number:012d}" for number in range(2, 7))
    assert f"({OTHER}: {listed} and 2 more; {MINE}: shardId-000000000001)" in why
    region = f" --region {OTHER.split(':')[1]}"
    assert why.endswith(
        f"aws dynamodb scan --table-name app{region} --filter-expression 'kclMldStream = :s' "
        f"--expression-attribute-values ':s={{S={OTHER}}}' --query 'Items[].[leaseKey.S]' "
        f"--output text | xargs -I% aws dynamodb delete-item --table-name app{region} "
        "--key 'leaseKey={S=%}'"
    )
    assert '"' not in why  # a log in JSON would escape it


def test_rows_of_this_stream_and_rows_that_say_nothing_are_served():
    rows = [single(0), marked(1, MINE)]
    assert foreign_rows(rows, "app", is_multi_stream=False, stream_mark=MINE) is None
    assert foreign_rows([marked(1, OTHER)], "app", is_multi_stream=False) is None


def test_until_the_account_is_known_the_names_of_streams_are_compared():
    name, other = MINE.rpartition(":")[2], OTHER.rpartition(":")[2]
    assert name != other
    rows = [marked(1, MINE), marked(2, "1:elsewhere:" + name)]
    assert foreign_rows(rows, "app", is_multi_stream=False, stream_mark=name) is None
    why = foreign_rows(rows, "app", is_multi_stream=False, stream_mark=other)
    assert f"reads the stream {other}, but the lease table app has rows of another stream" in why
