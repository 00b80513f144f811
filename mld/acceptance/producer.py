"""Puts numbered records into the stream, plain ones and aggregates, and notes what the stream took."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from kcl_mld.acceptance.rules.aggregate import aggregate

if TYPE_CHECKING:
    from kcl_mld.acceptance.budget import Budget
    from kcl_mld.acceptance.recording import RunRecording

#: Name of the stream in the recording.
RECORDS = "records"
_KEYS = tuple(f"key-{number}" for number in range(16))
#: Each request has a part of the keys, each once, so that what is put again keeps the key's order.
_KEYS_A_REQUEST = 8
_AGGREGATED = 5
_PAUSE_S = 0.25
#: Requests in a row that fail before the run is given up.
_MOST_FAILURES = 20
_THROTTLED_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is one record for Kinesis: ``count`` user records from number ``first`` on."""

    key: str
    first: int
    count: int
    is_aggregate: bool

    @property
    def data(self) -> bytes:
        payloads = [_payload(self.key, self.first + index) for index in range(self.count)]
        return aggregate(self.key, payloads) if self.is_aggregate else payloads[0]


def _payload(key: str, number: int) -> bytes:
    return json.dumps({"k": key, "n": number, "filler": "." * 80}).encode()


class Producer:
    """A thread; the numbers of each key go up by one, without a gap.

    Args:
        kinesis: botocore client; a request that it repeats by itself may put records twice.

    Attributes:
        pause_s: between two requests; may be changed at any time.
        failure: why the thread ended by itself.
    """

    def __init__(self, kinesis: Any, stream: str, budget: Budget, recording: RunRecording) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._budget = budget
        self._recording = recording
        self.pause_s = _PAUSE_S
        self.failure: str | None = None
        self._numbers = dict.fromkeys(_KEYS, 0)
        self._keys = itertools.cycle(_KEYS)
        self._aggregates = itertools.cycle((False, True, True))
        self._again: list[_Entry] = []
        self._requests = 0
        self._taken: set[tuple[str, int]] = set()
        self._unsure: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Return when the last request is answered; does nothing the second time."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
            self._recording.append("requests", by="producer", counts={"PutRecords": self._requests})

    @property
    def taken(self) -> set[tuple[str, int]]:
        """Key and number of the user records that the stream took so far."""
        with self._lock:
            return set(self._taken)

    @property
    def unsure(self) -> set[tuple[str, int]]:
        """The same of records of which nobody knows how often the stream took them."""
        with self._lock:
            return set(self._unsure)

    def _run(self) -> None:
        failures = 0
        while not self._ending.wait(_THROTTLED_PAUSE_S if self._again else self.pause_s):
            entries = self._next()
            try:
                self._put_entries(entries)
                failures = 0
            except (BotoCoreError, ClientError) as error:
                self._note_unsure(entries)
                failures += 1
                if failures == _MOST_FAILURES:
                    self.failure = f"PutRecords: {error}"
                    return

    def _next(self) -> list[_Entry]:
        """What the stream refused the last time, and other keys."""
        entries, self._again = self._again, []
        waiting = {entry.key for entry in entries}
        for key in itertools.islice(self._keys, _KEYS_A_REQUEST):
            if key not in waiting:
                is_aggregate = next(self._aggregates)
                entry = _Entry(
                    key, self._numbers[key], _AGGREGATED if is_aggregate else 1, is_aggregate
                )
                self._numbers[key] += entry.count
                entries.append(entry)
        return entries

    def _put_entries(self, entries: list[_Entry]) -> None:
        records = [{"PartitionKey": entry.key, "Data": entry.data} for entry in entries]
        at = time.time()
        self._requests += 1
        answer = self._kinesis.put_records(StreamName=self._stream, Records=records)
        if answer["ResponseMetadata"].get("RetryAttempts"):
            self._note_unsure(entries)
        self._budget.note_put(len(records), sum(len(record["Data"]) for record in records))
        for entry, result in zip(entries, answer["Records"], strict=True):
            if "ErrorCode" in result:
                self._again.append(entry)
                continue
            self._recording.append(
                "put",
                at=at,
                source=RECORDS,
                key=entry.key,
                first=entry.first,
                count=entry.count,
                shard=result["ShardId"],
                sequence=result["SequenceNumber"],
            )
            with self._lock:
                self._taken |= {(entry.key, entry.first + index) for index in range(entry.count)}

    def _note_unsure(self, entries: list[_Entry]) -> None:
        for entry in entries:
            self._recording.append(
                "unsure", source=RECORDS, key=entry.key, first=entry.first, count=entry.count
            )
            with self._lock:
                self._unsure |= {(entry.key, entry.first + index) for index in range(entry.count)}
