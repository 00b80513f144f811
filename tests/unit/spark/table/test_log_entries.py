"""Entries as other writers write them."""

import pytest

from kcl_mld.spark.table.snapshot import actions_in, is_restore, numbers_in

LARGEST = '{"txn":{"appId":"b","version":9223372036854775807,"lastUpdated":1}}'
TXN = '{"txn":{"appId":"a","version":3}}'


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", {}),
        (TXN, {"a": 3}),
        (f"{TXN}\r\n\r\n", {"a": 3}),
        (f"\n{TXN}\n{LARGEST}\n", {"a": 3, "b": 2**63 - 1}),
        ('{"txn":null,"add":{"path":"x"}}\n', {}),
        ('{"commitInfo":{"userMetadata":"a\u2028b\u0085c"}}\n' + TXN, {"a": 3}),
        ("[]", None),
        ("not JSON", None),
        ('{"txn":{"appId":"a"}}', None),
        ('{"txn":"a"}', None),
    ],
)
def test_numbers_are_read_or_not_known(text, numbers):
    assert numbers_in(text) == numbers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"add":{}}\n{"commitInfo":{"operation":"RESTORE"}}', True),
        ('{"commitInfo":{"operation":"WRITE"}}', False),
        ('{"commitInfo":null}', False),
        ('{"commitInfo":[]}', False),
        ("", False),
        ("{", False),
    ],
)
def test_a_restore_is_seen(text, found):
    assert is_restore(text) is found


def test_a_line_that_is_no_object_is_an_error():
    with pytest.raises(ValueError, match="no JSON object"):
        actions_in('{"add":{}}\n3\n')
