"""The played log in a played S3: the product's own ``DeltaLog`` follows it and writes its entries.

delta-rs is played, as far as it opens tables and sets properties, and so is each request to S3: the
answer to a put may be lost, or come to a client that asks again and meets its own object, and any
look may fail. Others act between any two requests.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from kcl_mld.config.spark.addresses import S3Place
from kcl_mld.spark.table.data_files import DataFile
from kcl_mld.spark.table.delta_log import DeltaLog
from kcl_mld.spark.table.own_entry import entry_text
from kcl_mld.spark.table.s3_access import StoreError
from kcl_mld.spark.table.s3_store import Bucket
from kcl_mld.spark.table.snapshot import actions_in
from tests.sim_spark.delta_log import FIELD, AnswerLost, Entry, HostLog, PlayedLog, Refused

PLACE = S3Place("bucket", "table")
_TAKEN = "PreconditionFailed"
#: How likely a look at an object fails, a put meets itself, and a user changes the table first.
_FAILS, _MEETS_ITSELF, _CHANGED = 0.02, 0.5, 0.03


class BucketLog(DeltaLog):
    """The log as one process uses it, with what it does of its own accord left out."""

    is_conditional = True

    def __init__(self, log: PlayedLog, host) -> None:
        super().__init__(Bucket(PLACE, _PlayedS3(self, log, host)))
        self.log = log
        self.delta_rs = HostLog(log, host)

    def create(self, schema, partitions, configuration, transactions) -> None:
        """By delta-rs."""
        self.delta_rs.create(schema, partitions, configuration, transactions)

    def keep_short(self, version: int) -> bool:
        """Never due."""
        return False

    def _opened(self) -> Any:
        return _OpenedTable(self) if self.log.entries else None


class UnconditionalLog(BucketLog):
    """WRONG: the store takes an entry although there is one of its name."""

    is_conditional = False


class _PlayedS3:
    """The surface of ``S3Access`` that the log of a table needs."""

    calls = 0

    def __init__(self, owner: BucketLog, log: PlayedLog, host) -> None:
        self._owner, self._log, self._host = owner, log, host
        self._world = log.world

    def stamp(self, key: str) -> object | None:
        """No table is ever exchanged for another one, so the name says all."""
        return key if self._found(key) is not None else None

    def get(self, key: str) -> bytes | None:
        return self._found(key)

    def read(self, key: str) -> tuple[bytes, object] | None:
        content = self._found(key)
        return None if content is None else (content, key)

    def put(self, key: str, content: bytes, *, is_new: bool = False) -> object:
        assert is_new
        if self._world.is_stormy and self._world.chance(_CHANGED):
            self._user_sets_a_property()
        number, entry = _version(key), _entry(content.decode())

        def apply() -> None:
            if number < len(self._log.entries) and self._owner.is_conditional:
                raise Refused
            assert number <= len(self._log.entries)
            self._log.entries[number:] = [entry, *self._log.entries[number + 1 :]]

        try:
            self._owner.delta_rs.change(apply)
        except Refused as error:
            raise StoreError("there is an object of that name", _TAKEN) from error
        except AnswerLost as error:
            is_ours = number < len(self._log.entries) and self._log.entries[number] is entry
            meets = is_ours and self._world.chance(_MEETS_ITSELF)
            self._world.met_itself += meets
            raise StoreError("no answer", _TAKEN if meets else "") from error
        return key

    def _found(self, key: str) -> bytes | None:
        self._world.meanwhile(self._host)
        if self._world.is_stormy and self._world.chance(_FAILS):
            raise StoreError("no answer")
        number = _version(key)
        if number >= len(self._log.entries):
            return None
        return _text(self._log.entries[number]).encode()

    def _user_sets_a_property(self) -> None:
        self._log.entries.append(Entry((), {}, {"the.users.own": str(len(self._log.entries))}))
        self._world.changed += 1


class _OpenedTable:
    """The surface of ``deltalake.DeltaTable`` that snapshots of an append need."""

    table_uri = str(PLACE)

    def __init__(self, owner: BucketLog) -> None:
        self._owner = owner
        self.update_incremental()
        self.alter = self

    def update_incremental(self) -> None:
        self._snapshot = self._owner.delta_rs.opened()

    def version(self) -> int:
        return self._snapshot.version

    def metadata(self) -> Any:
        found = self._snapshot
        return SimpleNamespace(
            id=found.table_id, configuration=found.configuration, partition_columns=[]
        )

    def protocol(self) -> Any:
        return SimpleNamespace(
            min_reader_version=1, min_writer_version=2, reader_features=None, writer_features=None
        )

    def schema(self) -> Any:
        text = json.dumps({"type": "struct", "fields": [FIELD]})
        return SimpleNamespace(to_json=lambda: text)

    def transaction_version(self, application_id: str) -> int | None:
        return self._snapshot.number_of(application_id)

    def set_table_properties(self, properties, *, commit_properties, **_: Any) -> None:
        numbers = {each.app_id: each.version for each in commit_properties.app_transactions}
        ((name, text),) = properties.items()
        self._snapshot.set_property(name, text, numbers)


def _version(key: str) -> int:
    return int(key.rpartition("/")[2].removesuffix(".json"))


def _text(entry: Entry) -> str:
    """As delta-rs writes it, or we."""
    text = entry_text(entry.files, entry.numbers, (), 0)
    if entry.properties is not None:
        text += json.dumps({"metaData": {"configuration": entry.properties}}) + "\n"
    return text


def _entry(text: str) -> Entry:
    """What an entry of ours says."""
    files, numbers = [], {}
    for action in actions_in(text):
        if (add := action.get("add")) is not None:
            rows = json.loads(add["stats"])["numRecords"]
            files.append(DataFile(add["path"], add["size"], 0, rows, {}, (FIELD,), ()))
        if (txn := action.get("txn")) is not None:
            numbers[txn["appId"]] = txn["version"]
    return Entry(tuple(files), numbers)
