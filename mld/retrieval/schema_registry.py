"""The versions of schemas that records of this worker name, each asked for once.

Records wait here, so nobody waits long: a question that is not answered within 5 s, repeated where
it fails, ends the waiting of all shards, and none is asked for the next 5 to 60 s. What is not known
by then stays framed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from kcl_mld.errors import AwsError, Denied, NotFound, ServiceError, Throttled
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.kernel.rules.backoff import MissLimit, Outage, backoff_s
from kcl_mld.retrieval.model.schema import KnownSchema, SchemaFailure, SchemaVersion, Undecodable
from kcl_mld.signals.model.metrics import GET_SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kcl_mld.aws.ports import Glue
    from kcl_mld.retrieval.model.schema import Catalogue
    from kcl_mld.retrieval.ports import DecoderFactory, DefinitionFiles
    from kcl_mld.retrieval.rules.schema_frame import FailureCount, FailureKey
    from kcl_mld.signals.runtime import Runtime

log = logging.getLogger("mld.retrieval")

#: Calls at a time.
CALLS = 4
#: Longest wait for one answer, name resolution and credentials included.
CALL_S = 5.0
#: A version that is not there is not asked for again before.
ABSENT_S = 60.0
#: Versions kept, and characters of their definitions.
MOST_VERSIONS = 1000
MOST_CHARACTERS = 32 * 2**20
_MISSES = 20
_MISS_INTERVAL_S = 6.0
_RETRY_S = 0.1
#: Answers of the service that give no information about the version.
_PASSING = {"InternalServiceException", "InternalFailure", "ServiceUnavailable"}
_FIRST_OUTAGE_S, _LONGEST_OUTAGE_S = 5.0, 60.0
#: Seconds after which the same failure of the same version is logged again.
_REPEAT_S = 3600.0
_MOST_LOGGED = 1000
#: They concern all versions alike, and are logged once for all.
_OF_ALL = {SchemaFailure.UNREACHABLE, SchemaFailure.TOO_MANY_UNKNOWN}


class SchemaRegistry:
    """One per worker.

    Attributes:
        known: found versions, and those whose definition is of no use; a new mapping after every
            change, so that other threads may read it.
    """

    def __init__(
        self,
        glue: Glue,
        files: DefinitionFiles,
        new_decoder: DecoderFactory | None,
        runtime: Runtime,
    ) -> None:
        """Create a registry; it makes no request before a record names a version.

        Args:
            files: gets every definition before the first record with it goes to a child.
            new_decoder: makes JSON text of payloads; None = they are passed on as they are.
        """
        self._glue = glue
        self.files = files
        self._new_decoder = new_decoder
        self._runtime = runtime
        self._clock = runtime.clock
        self.known: Mapping[str, KnownSchema | SchemaFailure] = {}
        self._by_use: OrderedDict[str, int] = OrderedDict()
        self._absent: dict[str, tuple[float, SchemaFailure]] = {}
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._places = asyncio.Semaphore(CALLS)
        self._misses = MissLimit(_MISSES, _MISS_INTERVAL_S)
        self._outage = Outage(_FIRST_OUTAGE_S, _LONGEST_OUTAGE_S)
        self._logged: OrderedDict[tuple[str, SchemaFailure], float] = OrderedDict()

    # -- looking up ----------------------------------------------------------------------------

    async def look_up(self, wanted: Mapping[str, int]) -> Catalogue:
        """The known facts about the versions, requested where necessary.

        Args:
            wanted: version ids with their numbers of records: the most frequent are asked for
                first, so that a few that are real get through among many that are none.
        """
        found: dict[str, KnownSchema | SchemaFailure] = {}

        async def find(version_id: str) -> None:
            found[version_id] = await self._find(version_id)

        in_order = sorted(wanted, key=lambda version_id: -wanted[version_id])
        await for_each(in_order, CALLS, find)
        return found

    async def _find(self, version_id: str) -> KnownSchema | SchemaFailure:
        # Others that wait here for the same version find the answer afterwards, or ask in turn.
        async with self._asking.setdefault(version_id, asyncio.Lock()), self._places:
            now = self._clock.monotonic()
            known = self.known.get(version_id)
            if known is not None:
                return known
            until, failure = self._absent.get(version_id, (now, SchemaFailure.NOT_FOUND))
            if now < until:
                return failure
            if self._outage.lasts(now):
                return SchemaFailure.UNREACHABLE
            if not self._misses.spend(now):
                return SchemaFailure.TOO_MANY_UNKNOWN
            return await self._ask(version_id)

    async def _ask(self, version_id: str) -> KnownSchema | SchemaFailure:
        failures: list[AwsError] = []
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._answer(version_id, failures)
        except TimeoutError:
            why = f": {failures[-1]}" if failures else ""
            return self._unreachable(version_id, f"no answer within {CALL_S:.0f} s{why}")
        except ServiceError as error:
            return self._refused(version_id, error)
        self._misses.give_back()
        self._outage.answered()
        return await self._found(_version(version_id, answer))

    async def _answer(self, version_id: str, failures: list[AwsError]) -> Mapping[str, object]:
        """Repeat the request until it is answered: a record that is passed on framed stays framed.

        Raises:
            ServiceError: the answer is a refusal.
        """
        while True:
            try:
                return await self._call(version_id)
            except AwsError as error:
                if isinstance(error, ServiceError) and not _may_pass(error):
                    raise
                failures.append(error)
            rng = self._runtime.rng
            await asyncio.sleep(backoff_s(len(failures), rng, first_s=_RETRY_S, cap_s=CALL_S))

    async def _call(self, version_id: str) -> Mapping[str, object]:
        began = self._clock.monotonic()
        answer = None
        try:
            answer = await self._glue.get_schema_version(SchemaVersionId=version_id)
        finally:
            took_s = self._clock.monotonic() - began
            metrics = self._runtime.metrics
            metrics.call(GET_SCHEMA_VERSION, took_s, succeeded=answer is not None)
        return answer

    def _unreachable(self, version_id: str, why: str) -> SchemaFailure:
        self._misses.give_back()
        self._outage.failed(self._clock.monotonic())
        self._tell(version_id, SchemaFailure.UNREACHABLE, why)
        return SchemaFailure.UNREACHABLE

    def _refused(self, version_id: str, error: ServiceError) -> SchemaFailure:
        self._outage.answered()
        failure = SchemaFailure.REFUSED
        if isinstance(error, NotFound):
            failure = SchemaFailure.NOT_FOUND
        elif isinstance(error, Denied):
            failure = SchemaFailure.DENIED
        now = self._clock.monotonic()
        self._absent = {one: entry for one, entry in self._absent.items() if now < entry[0]}
        self._absent[version_id] = (now + ABSENT_S, failure)
        self._tell(version_id, failure, str(error))
        return failure

    async def _found(self, version: SchemaVersion) -> KnownSchema | SchemaFailure:
        entry: KnownSchema | SchemaFailure
        try:
            decode = None
            if self._new_decoder is not None:
                decode = await self._runtime.offload.run(self._new_decoder, version)
            entry = KnownSchema(version, decode)
        except Undecodable as error:
            entry = SchemaFailure.UNUSABLE
            self._tell(version.version_id, entry, str(error))
        try:
            await self.files.put(version)
        except OSError as error:
            # Records are passed on; their program decides what it does without the definition.
            log.error(  # noqa: TRY400
                "schema version %s: its definition cannot be written into %s: %s",
                version.version_id,
                self.files.folder,
                error,
            )
        self._keep(version, entry)
        return entry

    # -- keeping -------------------------------------------------------------------------------

    def _keep(self, version: SchemaVersion, entry: KnownSchema | SchemaFailure) -> None:
        self._by_use[version.version_id] = len(version.definition)
        known = {**self.known, version.version_id: entry}
        while len(known) > 1 and (
            len(known) > MOST_VERSIONS or sum(self._by_use.values()) > MOST_CHARACTERS
        ):
            oldest, _ = self._by_use.popitem(last=False)
            del known[oldest]
        self.known = known

    def used(self, version_ids: Iterable[str]) -> None:
        """Records named these versions: they are forgotten last."""
        for version_id in version_ids:
            if version_id in self._by_use:
                self._by_use.move_to_end(version_id)

    # -- reporting -----------------------------------------------------------------------------

    def report(self, shard_id: str, failures: Mapping[FailureKey, FailureCount]) -> None:
        """Log records that stayed framed, each kind of failure of each version once an hour."""
        for (version_id, failure), count in failures.items():
            record = f"first seen in {shard_id} at {count.sequence_number}"
            self._tell(version_id, failure, f"{count.detail}; {record}" if count.detail else record)

    def _tell(self, version_id: str, failure: SchemaFailure, detail: str) -> None:
        is_of_all = failure in _OF_ALL
        key = ("" if is_of_all else version_id, failure)
        now = self._clock.monotonic()
        logged_at = self._logged.get(key)
        if logged_at is not None and now - logged_at < _REPEAT_S:
            return
        self._logged[key] = now
        self._logged.move_to_end(key)
        if len(self._logged) > _MOST_LOGGED:
            self._logged.popitem(last=False)
        if is_of_all:
            detail += "; other versions are not logged for an hour"
        log.warning(
            "schema version %s: %s, so its records stay framed (%s)", version_id, failure, detail
        )


def _may_pass(error: ServiceError) -> bool:
    return isinstance(error, Throttled) or error.code in _PASSING


def _version(version_id: str, answer: Mapping[str, object]) -> SchemaVersion:
    """The version in an answer; the name is the last part of the schema's ARN."""
    return SchemaVersion(
        version_id=version_id,
        name=str(answer.get("SchemaArn") or "").rpartition("/")[2],
        data_format=str(answer.get("DataFormat") or ""),
        definition=str(answer.get("SchemaDefinition") or ""),
    )
