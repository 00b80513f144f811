"""Putting a file of records into a stream."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from kcl_mld.errors import ConfigError
from kcl_mld.local import feeding
from kcl_mld.local.feeding import put_all, put_items, read_records


class Client:
    """A Kinesis client that refuses every third record once."""

    def __init__(self, *, picky: bool = False) -> None:
        self.batches: list[int] = []
        self.data: list[bytes] = []
        self._picky = picky

    def put_records(self, **request: Any) -> dict[str, Any]:
        records = request["Records"]
        self.batches.append(len(records))
        results: list[dict[str, str]] = []
        for index, record in enumerate(records):
            if self._picky and index % 3 == 2:
                results.append({"ErrorCode": "ProvisionedThroughputExceededException"})
            else:
                results.append({"SequenceNumber": "1"})
                self.data.append(record["Data"])
        return {"FailedRecordCount": sum("ErrorCode" in r for r in results), "Records": results}


def test_lines_become_records() -> None:
    lines = [
        b'\xef\xbb\xbf{"partitionKey": "k", "data": "\xc3\xa9"}\n',
        b"\n",
        b'{"partitionKey": "k", "dataBase64": "AP8=", "explicitHashKey": "7"}',
    ]
    assert [entry for entry, _ in read_records(lines, "f")] == [
        {"PartitionKey": "k", "Data": "é".encode()},
        {"PartitionKey": "k", "Data": b"\x00\xff", "ExplicitHashKey": "7"},
    ]
    consumed = [done for _, done in read_records(lines, "f")]
    assert consumed == [len(lines[0]), sum(map(len, lines))]


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"{}",
        b'{"partitionKey": "k"}',
        b'{"partitionKey": "k", "data": "", "dataBase64": ""}',
        b'{"partitionKey": "k", "dataBase64": "%"}',
        b'{"partitionKey": "k", "data": "", "datum": 1}',
        b'{"partitionKey": "", "data": "x"}',
        b'{"partitionKey": "%s", "data": "x"}' % (b"k" * 257),
    ],
)
def test_a_bad_line_is_named(line: bytes) -> None:
    good = b'{"partitionKey": "k", "data": ""}\n'
    with pytest.raises(ConfigError, match=r"f:2: .*one JSON object such as"):
        list(read_records([good, line], "f"))


def test_batches_stay_within_count_and_size() -> None:
    client = Client()
    small = [({"PartitionKey": "k", "Data": b"x"}, n) for n in range(501)]
    large = [({"PartitionKey": "k", "Data": bytes(3 * 1024 * 1024)}, n) for n in range(501, 503)]
    progress: list[int] = []
    assert put_all(client, "s", [*small, *large], progress.append) == 503
    assert client.batches == [500, 2, 1]
    assert progress[-1] == 502


def test_refused_records_are_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "_RETRY_S", 0.0)
    client = Client(picky=True)
    records = [({"PartitionKey": "k", "Data": b"%d" % n}, n) for n in range(9)]
    assert put_all(client, "s", records, lambda _n: None) == 9
    assert sorted(client.data) == [b"%d" % n for n in range(9)]
    assert client.batches == [9, 3, 1]


def test_an_empty_file_puts_nothing() -> None:
    client = Client()
    assert put_all(client, "s", [], lambda _n: None) == 0
    assert client.batches == []


class Table:
    """A DynamoDB client whose table has the key ``pk``."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def put_item(self, **request: Any) -> None:
        assert request["TableName"] == "t"
        if "pk" not in request["Item"]:
            error = {"Code": "ValidationException", "Message": "Missing the key pk"}
            raise ClientError({"Error": error}, "PutItem")
        self.items.append(request["Item"])


def test_lines_become_items() -> None:
    table = Table()
    lines = [
        b'{"pk": "\xc3\xa9", "n": 12.50, "big": 123456789012345678901, "e": -1e3}\n',
        b"\n",
        b'{"pk": "b", "l": [true, null], "m": {"x": {}}}',
    ]
    progress: list[int] = []
    assert put_items(table, "t", lines, "f", progress.append) == 2
    assert table.items == [
        {
            "pk": {"S": "\xe9"},
            "n": {"N": "12.50"},
            "big": {"N": "123456789012345678901"},
            "e": {"N": "-1E+3"},
        },
        {
            "pk": {"S": "b"},
            "l": {"L": [{"BOOL": True}, {"NULL": True}]},
            "m": {"M": {"x": {"M": {}}}},
        },
    ]
    assert progress == [len(lines[0]), sum(map(len, lines))]


@pytest.mark.parametrize("line", [b"x", b"[]", b"1", b'{"pk": NaN}', b"{}", b'{"pk": "\xff"}'])
def test_a_line_that_is_no_item_is_named(line: bytes) -> None:
    with pytest.raises(ConfigError, match=r"f:2: .*one JSON object such as"):
        put_items(Table(), "t", [b'{"pk": "a"}\n', line], "f", lambda _n: None)
