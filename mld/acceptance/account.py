"""Finds and deletes resources of each kind, one call after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from kcl_mld.acceptance.rules.resource import Found, Resource, ResourceKind
from kcl_mld.aws.errors import service_error
from kcl_mld.config.stream import partition_of
from kcl_mld.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcl_mld.acceptance.clients import Clients

_DELETING = "DELETING"


class Account:
    """The resources of one account in one region.

    Args:
        account_id: twelve digits.
    """

    def __init__(self, clients: Clients, account_id: str) -> None:
        self._call = clients.call
        self._region = clients.region
        self._id = account_id
        self._finders = {
            ResourceKind.CONSUMER: self._find_consumer,
            ResourceKind.STREAM: self._find_stream,
            ResourceKind.LEASE_TABLE: self._find_table,
            ResourceKind.TABLE: self._find_tagged_table,
            ResourceKind.GLUE_DATABASE: self._find_glue_database,
            ResourceKind.OBJECTS: self._find_objects,
        }
        self._deleters = {
            ResourceKind.CONSUMER: self._delete_consumer,
            ResourceKind.STREAM: self._delete_stream,
            ResourceKind.LEASE_TABLE: self._delete_table,
            ResourceKind.TABLE: self._delete_table,
            ResourceKind.GLUE_DATABASE: self._delete_glue_database,
            ResourceKind.OBJECTS: self._delete_objects,
        }

    def arn(self, service: str, rest: str) -> str:
        """The ARN of something of this account and region, e.g. ``("kinesis", "stream/name")``."""
        return f"arn:{partition_of(self._region)}:{service}:{self._region}:{self._id}:{rest}"

    def find(self, resource: Resource) -> Found | None:
        """The resource as it is now; None = there is none of this name.

        Raises:
            AwsError: it could not be found out.
        """
        try:
            return self._finders[resource.kind](resource)
        except NotFound:
            return None

    def delete(self, resource: Resource) -> None:
        """Begin its deletion; AWS takes up to minutes for some kinds.

        Raises:
            AwsError: it is not deleted.
        """
        try:
            self._deleters[resource.kind](resource)
        except NotFound:
            return

    # -- Kinesis ---------------------------------------------------------------------------------

    def _find_stream(self, resource: Resource) -> Found:
        summary = self._call("kinesis", "describe_stream_summary", StreamName=resource.name)
        found = summary["StreamDescriptionSummary"]
        listed = self._call("kinesis", "list_tags_for_stream", StreamName=resource.name)
        return Found(
            created_s=found["StreamCreationTimestamp"].timestamp(),
            tags={tag["Key"]: tag["Value"] for tag in listed["Tags"]},
            is_going=found["StreamStatus"] == _DELETING,
        )

    def _delete_stream(self, resource: Resource) -> None:
        # A consumer that is not of this run makes Kinesis refuse.
        self._call("kinesis", "delete_stream", StreamName=resource.name)

    def _find_consumer(self, resource: Resource) -> Found:
        answer = self._call("kinesis", "describe_stream_consumer", **self._consumer(resource))
        found = answer["ConsumerDescription"]
        return Found(
            created_s=found["ConsumerCreationTimestamp"].timestamp(),
            is_going=found["ConsumerStatus"] == _DELETING,
        )

    def _delete_consumer(self, resource: Resource) -> None:
        self._call("kinesis", "deregister_stream_consumer", **self._consumer(resource))

    def _consumer(self, resource: Resource) -> dict[str, str]:
        arn = self.arn("kinesis", f"stream/{resource.owner}")
        return {"StreamARN": arn, "ConsumerName": resource.name}

    # -- DynamoDB --------------------------------------------------------------------------------

    def _find_table(self, resource: Resource) -> Found:
        table = self._call("dynamodb", "describe_table", TableName=resource.name)["Table"]
        keys = [one["AttributeName"] for one in table["KeySchema"] if one["KeyType"] == "HASH"]
        return Found(
            created_s=table["CreationDateTime"].timestamp(),
            key=keys[0],
            is_going=table["TableStatus"] == _DELETING,
        )

    def _find_tagged_table(self, resource: Resource) -> Found:
        found = self._find_table(resource)
        arn = self.arn("dynamodb", f"table/{resource.name}")
        listed = self._call("dynamodb", "list_tags_of_resource", ResourceArn=arn)
        tags = {tag["Key"]: tag["Value"] for tag in listed["Tags"]}
        return Found(found.created_s, tags, found.key, found.is_going)

    def _delete_table(self, resource: Resource) -> None:
        self._call("dynamodb", "delete_table", TableName=resource.name)

    # -- Glue and S3 -----------------------------------------------------------------------------

    def _find_glue_database(self, resource: Resource) -> Found:
        found = self._call("glue", "get_database", Name=resource.name)["Database"]
        return Found(found["CreateTime"].timestamp(), found.get("Parameters", {}))

    def _delete_glue_database(self, resource: Resource) -> None:
        listed = self._call("glue", "get_tables", DatabaseName=resource.name)
        for table in listed["TableList"]:
            name = table["Name"]
            self._call("glue", "delete_table", DatabaseName=resource.name, Name=name)
        self._call("glue", "delete_database", Name=resource.name)

    def _find_objects(self, resource: Resource) -> Found | None:
        times = [one["LastModified"].timestamp() for page in self._pages(resource) for one in page]
        return Found(min(times)) if times else None

    def _delete_objects(self, resource: Resource) -> None:
        bucket, _, _ = resource.name.partition("/")
        for page in self._pages(resource):
            keys = [{"Key": one["Key"]} for one in page]
            answer = self._call("s3", "delete_objects", Bucket=bucket, Delete={"Objects": keys})
            for refused in answer.get("Errors", ()):
                raise service_error(ClientError({"Error": refused}, "DeleteObjects"), writes=True)

    def _pages(self, resource: Resource) -> Iterator[list[dict[str, Any]]]:
        bucket, _, prefix = resource.name.partition("/")
        more: dict[str, str] = {}
        while True:
            page = self._call("s3", "list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
            if page.get("Contents"):
                yield page["Contents"]
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}
