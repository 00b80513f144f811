"""moto's DynamoDB with the streams of :mod:`kcl_mld.local.dynamodb_streams` in the place of moto's.

moto gives each stream one shard for ever, fails at every write after a stream was disabled, enables
none again, and reports an UpdateItem that makes an item as two changes. So its stream, which has
both images always, is the log of a table's changes here, and no client sees it.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from werkzeug.test import run_wsgi_app

from kcl_mld.local.dynamodb_streams import VIEW_TYPES
from kcl_mld.local.kinesis.faults import KinesisFault, in_use, malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kcl_mld.local.dynamodb_streams import TableStreams

    Environ = dict[str, Any]
    Wsgi = Callable[[Environ, Any], Iterable[bytes]]

TARGET = "DynamoDBStreams_20120810"
#: Member of the answer that describes the table, by operation.
_DESCRIBING = {
    "CreateTable": "TableDescription",
    "DeleteTable": "TableDescription",
    "DescribeTable": "Table",
    "UpdateTable": "TableDescription",
}
#: Records of a full answer of moto.
_PAGE = 1000
_READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})
_LOG = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


@dataclass(slots=True)
class _StreamedTable:
    """A table that has or had a stream.

    Attributes:
        name: occurs in every request that changes the table.
        log: how moto's stream is asked: the next change is at ``SequenceNumber``.
        iterator: of moto, at the same place; empty = to be asked for.
        stream: ARN of its latest stream.
        view_type: of that; None = it was disabled.
    """

    name: str
    log: dict[str, str]
    stream: str
    view_type: str | None
    iterator: str = ""

    def shown(self, described: dict[str, Any]) -> dict[str, Any]:
        """The description of the table with this stream."""
        label = self.stream.rpartition("/")[2]
        shown = described | {"LatestStreamArn": self.stream, "LatestStreamLabel": label}
        shown.pop("StreamSpecification", None)
        if self.view_type is not None:
            shown["StreamSpecification"] = {**_LOG, "StreamViewType": self.view_type}
        return shown


class StreamedTables:
    """Answers the requests of DynamoDB and DynamoDB Streams, one at a time.

    Args:
        moto: its WSGI application.
    """

    def __init__(self, moto: Wsgi, streams: TableStreams) -> None:
        self._moto = moto
        self._streams = streams
        self._tables: dict[str, _StreamedTable] = {}

    def answer(self, environ: Environ, region: str) -> tuple[int, bytes] | None:
        """Status and body of an answer; None = moto's own is right, and :meth:`follow` is due."""
        target, _, operation = environ.get("HTTP_X_AMZ_TARGET", "").partition(".")
        if target != TARGET and operation not in _DESCRIBING:
            return None
        request = json.loads(_body(environ) or b"{}")
        try:
            if target == TARGET:
                return 200, self._streams.call(operation, request, region).encode()
            return self._describing(environ, operation, request)
        except KinesisFault as fault:
            error = {"__type": fault.code, "message": fault.message}
            return fault.http_status, json.dumps(error).encode()

    def follow(self, environ: Environ, *, is_refused: bool) -> None:
        """Add what a request has changed to the streams.

        Args:
            is_refused: it has changed nothing.
        """
        if environ.get("HTTP_X_AMZ_TARGET", "").partition(".")[2] in _READS:
            return
        body = _body(environ)
        for table in self._tables.values():
            if table.name.encode() not in body:
                continue
            if is_refused:  # moto undoes a transaction by a copy, which iterators do not follow
                table.iterator = ""
                continue
            changes = [*self._changes(environ, table)]
            if table.view_type is not None and changes:
                self._streams.append(table.stream, changes)

    def _describing(
        self, environ: Environ, operation: str, request: dict[str, Any]
    ) -> tuple[int, bytes]:
        wanted, table = request.get("StreamSpecification"), None
        if wanted is not None:
            table = self._table(environ, request) if operation == "UpdateTable" else None
            request = {**request, "StreamSpecification": _allowed(wanted, table)}
            if table is not None or not wanted.get("StreamEnabled"):
                del request["StreamSpecification"]
        status, body = self._ask(environ, f"DynamoDB_20120810.{operation}", request)
        answer = json.loads(body) if status == 200 else {}
        described = answer.get(_DESCRIBING[operation])
        if described is None:
            return status, body
        arn = described["TableArn"]
        if wanted is not None and wanted.get("StreamEnabled"):
            log = self._log_of(environ, described) if table is None else table.log
            view_type = wanted["StreamViewType"]
            stream = self._streams.enable(arn, view_type, described["KeySchema"])
            self._tables[arn] = _StreamedTable(described["TableName"], log, stream, view_type)
        elif wanted is not None and table is not None:
            self._disable(table)
        table = self._tables.get(arn)
        if table is None:
            return status, body
        if operation == "DeleteTable":
            self._disable(self._tables.pop(arn))
        answer[_DESCRIBING[operation]] = table.shown(described)
        return status, json.dumps(answer).encode()

    def _disable(self, table: _StreamedTable) -> None:
        if table.view_type is not None:
            self._streams.disable(table.stream)
            table.view_type = None

    def _table(self, environ: Environ, request: dict[str, Any]) -> _StreamedTable | None:
        """The table of a request, if it has or had a stream."""
        asked = {"TableName": request.get("TableName")}
        _, body = self._ask(environ, "DynamoDB_20120810.DescribeTable", asked)
        return self._tables.get(json.loads(body).get("Table", {}).get("TableArn", ""))

    def _log_of(self, environ: Environ, described: dict[str, Any]) -> dict[str, str]:
        """Where moto's stream begins."""
        arn = described["LatestStreamArn"]
        _, body = self._ask(environ, f"{TARGET}.DescribeStream", {"StreamArn": arn})
        (shard,) = json.loads(body)["StreamDescription"]["Shards"]
        return {
            "StreamArn": arn,
            "ShardId": shard["ShardId"],
            "ShardIteratorType": "AT_SEQUENCE_NUMBER",
            "SequenceNumber": shard["SequenceNumberRange"]["StartingSequenceNumber"],
        }

    def _changes(self, environ: Environ, table: _StreamedTable) -> Iterator[dict[str, Any]]:
        """What moto's stream has since the last call, as AWS would have it."""
        if not table.iterator:
            _, body = self._ask(environ, f"{TARGET}.GetShardIterator", table.log)
            table.iterator = json.loads(body)["ShardIterator"]
        records: list[dict[str, Any]] = []
        while len(records) % _PAGE == 0:
            asked = {"ShardIterator": table.iterator}
            _, body = self._ask(environ, f"{TARGET}.GetRecords", asked)
            answer = json.loads(body)
            table.iterator = answer["NextShardIterator"]
            if not answer["Records"]:
                break
            records += answer["Records"]
        table.log["SequenceNumber"] = str(int(table.log["SequenceNumber"]) + len(records))
        for record, following in pairwise([*records, {"eventName": None}]):
            change = record["dynamodb"]
            if record["eventName"] == "MODIFY" and change["OldImage"] == change["NewImage"]:
                continue  # a write that changes nothing is no change
            if _is_made_again(record, following):
                continue
            yield record

    def _ask(self, environ: Environ, target: str, request: dict[str, Any]) -> tuple[int, bytes]:
        """A request to moto beside the one that is being answered."""
        body = json.dumps(request).encode()
        asked = environ | {
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_X_AMZ_TARGET": target,
            "wsgi.input": io.BytesIO(body),
        }
        chunks, status, _ = run_wsgi_app(self._moto, asked, buffered=True)
        return int(status.split()[0]), b"".join(chunks)


def _allowed(wanted: dict[str, Any], table: _StreamedTable | None) -> dict[str, Any]:
    """What moto is asked for.

    Raises:
        KinesisFault: the table can't have that.
    """
    is_enabled = table is not None and table.view_type is not None
    if not wanted.get("StreamEnabled"):
        return {}
    if wanted.get("StreamViewType") not in VIEW_TYPES:
        raise malformed(f"StreamViewType is to be one of {', '.join(sorted(VIEW_TYPES))}.")
    if is_enabled:
        raise in_use("Table already has an enabled stream.")
    return _LOG


def _is_made_again(record: dict[str, Any], following: dict[str, Any]) -> bool:
    """Whether both are of one UpdateItem that made an item, of which moto first adds the key."""
    is_new = record["eventName"] == following["eventName"] == "INSERT"
    return is_new and bool(record["dynamodb"]["Keys"] == following["dynamodb"]["Keys"])


def _body(environ: Environ) -> bytes:
    whole: bytes = environ["wsgi.input"].getvalue()
    return whole
