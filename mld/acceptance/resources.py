"""What a run creates in the account, under names that nobody has."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kcl_mld.acceptance.options import MOST_SHARDS, SHARDS
from kcl_mld.acceptance.rules.plan import planned
from kcl_mld.acceptance.rules.resource import TAG, ResourceKind
from kcl_mld.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.client import BaseClient

    from kcl_mld.acceptance.account import Account
    from kcl_mld.acceptance.budget import Budget
    from kcl_mld.acceptance.clients import Clients
    from kcl_mld.acceptance.journal import Journal
    from kcl_mld.acceptance.options import Options
    from kcl_mld.acceptance.rules.resource import Resource

_WAIT_S = 1.0


class Resources:
    """The names of a run's resources, and the calls that create and change them. Thread-safe.

    Attributes:
        call: see :meth:`Clients.call`.
        source_table_stream_arn: known after :meth:`create`; "" without that table.
    """

    def __init__(
        self,
        options: Options,
        clients: Clients,
        account: Account,
        budget: Budget,
        progress: Callable[[str], None],
    ) -> None:
        names = options.names
        self._options = options
        self._clients = clients
        self.call = clients.call
        self._account = account
        self._budget = budget
        self._progress = progress
        self.stream = names.stream
        self.stream_arn = account.arn("kinesis", f"stream/{names.stream}")
        self.polling_application = names.polling_application
        self.fan_out_application = names.fan_out_application
        self.source_table = names.source_table
        self.source_table_stream_arn = ""
        self.table_application = names.table_application

    def control(self, service: str) -> BaseClient:
        """A client whose requests go at the common pace; see :class:`Clients`."""
        return self._clients.control(service)

    def data(self, service: str) -> BaseClient:
        """A client for this run's own resources, whose requests don't wait."""
        return self._clients.data(service)

    def credentials(self) -> tuple[str, str, str | None]:
        """Key id, secret and token of now, for clients that are not botocore's."""
        return self._clients.credentials()

    # -- creation --------------------------------------------------------------------------------

    def planned(self) -> tuple[Resource, ...]:
        """All that is created, by workers too."""
        options = self._options
        return planned(options.names, options.stages, options.bucket)

    def refuse_what_exists(self) -> None:
        """Look at every name before anything is created.

        Raises:
            ConfigError: there is something of that name.
            AwsError: it could not be found out.
        """
        for resource in self.planned():
            if self._account.find(resource) is not None:
                raise ConfigError(f"{resource} exists already: nothing was created")

    def refuse_without_quota(self) -> None:
        """Find out whether the stream may have its shards.

        Raises:
            ConfigError: the account has too few left.
        """
        limits = self.call("kinesis", "describe_limits")
        left = limits["ShardLimit"] - limits["OpenShardCount"]
        if left < MOST_SHARDS:
            why = f"the account has {left} shards left in this region; the run needs {MOST_SHARDS}"
            raise ConfigError(f"{why}: nothing was created")

    def create(self, journal: Journal) -> None:
        """Create what the command creates; announce that and what its workers create.

        Raises:
            BudgetExhausted: a limit was reached meanwhile.
            AwsError: something is not created; what was is in the journal.
        """
        creators = {
            ResourceKind.STREAM: self._create_stream,
            ResourceKind.TABLE: self._create_table,
            ResourceKind.GLUE_DATABASE: self._create_glue_database,
        }
        for resource in self.planned():
            self._budget.check()
            journal.announce(resource)
            create = creators.get(resource.kind)
            if create is None:
                continue  # workers create it
            self._progress(f"Creating {resource}")
            create(resource)
            found = self._account.find(resource)
            if found is not None:
                journal.created(resource, found.created_s)

    def _create_stream(self, resource: Resource) -> None:
        tags = {TAG: self._options.run_id}
        request = {"StreamName": resource.name, "ShardCount": SHARDS, "Tags": tags}
        self.call("kinesis", "create_stream", **request)
        self.wait_active()

    def _create_table(self, resource: Resource) -> None:
        answer = self.call(
            "dynamodb",
            "create_table",
            TableName=resource.name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
            Tags=[{"Key": TAG, "Value": self._options.run_id}],
        )
        self.source_table_stream_arn = answer["TableDescription"]["LatestStreamArn"]
        self._until_active(partial(self._table_status, resource.name))

    def _table_status(self, name: str) -> str:
        return str(self.call("dynamodb", "describe_table", TableName=name)["Table"]["TableStatus"])

    def _create_glue_database(self, resource: Resource) -> None:
        described = {"Name": resource.name, "Parameters": {TAG: self._options.run_id}}
        self.call("glue", "create_database", DatabaseInput=described)

    # -- the stream ------------------------------------------------------------------------------

    def wait_active(self) -> None:
        """Return when the stream takes changes.

        Raises:
            BudgetExhausted: a limit was reached meanwhile.
            AwsError: a call failed.
        """
        self._until_active(self._stream_status)

    def _until_active(self, status: Callable[[], str]) -> None:
        while True:
            with suppress(NotFound):  # as AWS may say for a moment after a creation
                if status() == "ACTIVE":
                    return
            self._budget.sleep(_WAIT_S)

    def _stream_status(self) -> str:
        answer = self.call("kinesis", "describe_stream_summary", StreamName=self.stream)
        return str(answer["StreamDescriptionSummary"]["StreamStatus"])

    def open_shards(self) -> list[dict[str, Any]]:
        """Shards that take records, as ListShards has them, by their hash keys.

        Raises:
            AwsError: a call failed.
        """
        listed = self.call("kinesis", "list_shards", StreamName=self.stream)["Shards"]
        found = [one for one in listed if "EndingSequenceNumber" not in one["SequenceNumberRange"]]
        return sorted(found, key=lambda one: int(one["HashKeyRange"]["StartingHashKey"]))

    def split(self, shard: dict[str, Any]) -> None:
        """Split an open shard in the middle; returns when the stream is active again.

        Raises:
            BudgetExhausted: a limit was reached meanwhile.
            AwsError: a call failed.
        """
        keys = shard["HashKeyRange"]
        middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2 + 1
        self.call(
            "kinesis",
            "split_shard",
            StreamName=self.stream,
            ShardToSplit=shard["ShardId"],
            NewStartingHashKey=str(middle),
        )
        self.wait_active()

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> None:
        """Merge two neighbors; returns when the stream is active again.

        Raises:
            BudgetExhausted: a limit was reached meanwhile.
            AwsError: a call failed.
        """
        self.call(
            "kinesis",
            "merge_shards",
            StreamName=self.stream,
            ShardToMerge=left["ShardId"],
            AdjacentShardToMerge=right["ShardId"],
        )
        self.wait_active()
