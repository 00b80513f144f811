"""How a bucket of S3 is reached, and the few requests that are made there.

Region, endpoint and credentials are found as every AWS client finds them (environment, ``~/.aws``,
web identity, container, instance). No key is ever copied: delta-rs gets the region and the
endpoint, and has providers of its own, so credentials that expire are renewed by each.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kcl_mld.config.spark.addresses import is_s3, s3_place
from kcl_mld.spark.errors import SinkRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kcl_mld.config.spark.addresses import S3Place
    from kcl_mld.spark.config import SparkConfig

T = TypeVar("T")

#: Endpoints that every client makes out of the region by itself.
_USUAL = re.compile(r"https://s3(\.[a-z0-9-]+)?\.amazonaws\.com/?")
#: Where the marks of jobs are that are not committed.
PENDING = "kcl-mld-pending"
#: There is no such object.
MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
#: An object with this name is there already.
TAKEN = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
_DEFAULT_REGION = "us-east-1"
_DENIED = frozenset({"AccessDenied", "403", "Forbidden"})
_BAD_KEYS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
)
_NEEDED = "s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject below"
#: Of one list: ten million objects. Each page may name another place to go on, so that nothing but
#: their number tells that something on the way to S3 makes them up.
_MOST_PAGES = 10_000


class StoreError(OSError):
    """S3 did not do what it was asked for.

    Attributes:
        code: of S3's answer; "" = there was none.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class BucketPlace(NamedTuple):
    """How a bucket is reached.

    Attributes:
        region: of the bucket.
        endpoint: URL; None = the usual one of AWS.
    """

    region: str
    endpoint: str | None

    def options(self) -> dict[str, str]:
        """For delta-rs. Its commits are conditional puts, whatever the environment says."""
        found = {
            "aws_region": self.region,
            "aws_conditional_put": "etag",
            "aws_s3_allow_unsafe_rename": "false",
            # Else delta-rs looks for keys alone where there is an endpoint.
            "aws_force_credential_load": "true",
        }
        if self.endpoint is not None:
            found |= {"aws_endpoint": self.endpoint, "aws_virtual_hosted_style_request": "false"}
            if self.endpoint.startswith("http://"):
                found["aws_allow_http"] = "true"
        return found


class ListedObject(NamedTuple):
    """An object in a listing.

    Attributes:
        key: its name.
        size: in bytes.
        modified_ms: since 1970, by S3's clock.
    """

    key: str
    size: int
    modified_ms: int


class StoredObject(NamedTuple):
    """An object that was read.

    Attributes:
        content: of it.
        tag: tells it from others of its name (``ETag``).
    """

    content: bytes
    tag: str


class S3Access:
    """Requests to one bucket. Nothing is asked before the first use; safe to use from any thread."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self._lock = threading.Lock()
        self._found: tuple[Any, BucketPlace] | None = None
        #: How many calls were made; not those that botocore repeats, nor those of delta-rs.
        self.calls = 0

    @property
    def reach(self) -> BucketPlace:
        """How the bucket is reached.

        Raises:
            SinkRefused: there is no such bucket, or nothing to reach it with.
            StoreError: it does not answer.
        """
        return self._ready()[1]

    def get(self, key: str) -> bytes | None:
        """An object; None if it is not there.

        Raises:
            StoreError: it can't be read.
        """
        found = self.read(key)
        return None if found is None else found.content

    def read(self, key: str) -> StoredObject | None:
        """An object with its tag; None if it is not there.

        Raises:
            StoreError: it can't be read.
        """

        def read(client: Any) -> StoredObject:
            answer = client.get_object(Bucket=self.bucket, Key=key)
            return StoredObject(answer["Body"].read(), answer["ETag"])

        return self._unless_missing(f"read {key}", read)

    def put(self, key: str, content: bytes, *, is_new: bool = False) -> str:
        """Make an object; it is durable once this returns.

        Args:
            is_new: True = it must not be there yet.

        Returns:
            its tag.

        Raises:
            StoreError: it may be there or not.
        """
        only = {"IfNoneMatch": "*"} if is_new else {}
        answer = self._asked(
            f"write {key}",
            lambda client: client.put_object(Bucket=self.bucket, Key=key, Body=content, **only),
        )
        return str(answer["ETag"])

    def delete(self, key: str) -> None:
        """Remove an object; quiet if it is gone.

        Raises:
            StoreError: it may be there or not.
        """
        self._asked(
            f"delete {key}", lambda client: client.delete_object(Bucket=self.bucket, Key=key)
        )

    def stamp(self, key: str) -> object | None:
        """What tells an object from an earlier one of its name; None if it is not there.

        Raises:
            StoreError: it can't be read.
        """

        def look(client: Any) -> object:
            return client.head_object(Bucket=self.bucket, Key=key)["ETag"]

        return self._unless_missing(f"look at {key}", look)

    def list(self, prefix: str, *, is_flat: bool = False) -> Iterator[ListedObject]:
        """The objects whose names begin so, in their order.

        Args:
            is_flat: True = only those without a slash behind it.

        Raises:
            StoreError: they can't be listed, or the list has no end.
        """
        flat = {"Delimiter": "/"} if is_flat else {}
        token = ""
        for _ in range(_MOST_PAGES):
            page = self._page(prefix, {**flat, "ContinuationToken": token} if token else flat)
            for each in page.get("Contents", ()):
                modified_ms = int(each["LastModified"].timestamp() * 1000)
                yield ListedObject(each["Key"], each["Size"], modified_ms)
            if not page.get("IsTruncated"):
                return
            before, token = token, page.get("NextContinuationToken", "")
            if not token:
                raise self._unlisted(
                    prefix, "a page is not the last and does not say where to go on"
                )
            if token == before:
                raise self._unlisted(prefix, "a page goes on where it began")
        raise self._unlisted(prefix, f"the list does not end: {_MOST_PAGES} pages were read")

    def now_ms(self, prefix: str) -> int:
        """The time by S3's clock, since 1970.

        Raises:
            StoreError: it does not answer.
        """
        page = self._page(prefix, {}, 1)
        moment = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
        return int(moment.timestamp() * 1000)

    def _page(self, prefix: str, more: Mapping[str, str], count: int = 1000) -> dict[str, Any]:
        def ask(client: Any) -> Any:
            return client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, MaxKeys=count, **more)

        page: dict[str, Any] = self._asked(f"list {prefix}", ask)
        return page

    def _unlisted(self, prefix: str, why: str) -> StoreError:
        advice = "look at what stands between this process and the bucket"
        return StoreError(f"s3://{self.bucket}: can't list {prefix}: {why}; {advice}")

    def _unless_missing(self, what: str, ask: Callable[[Any], T]) -> T | None:
        try:
            return self._asked(what, ask)
        except StoreError as error:
            if error.code in MISSING:
                return None
            raise

    def _asked(self, what: str, ask: Callable[[Any], T]) -> T:
        client = self._ready()[0]
        with self._lock:
            self.calls += 1
        return asked(f"s3://{self.bucket}: can't {what}", lambda: ask(client))

    def _ready(self) -> tuple[Any, BucketPlace]:
        with self._lock:
            if self._found is None:
                self._found = self._connected()
            return self._found

    def _connected(self) -> tuple[Any, BucketPlace]:
        """A client in the bucket's own region, which S3 tells to anybody who asks for the bucket."""
        from botocore.exceptions import (  # noqa: PLC0415 - slow to import, for S3 alone
            BotoCoreError,
            ClientError,
            NoCredentialsError,
        )

        name = f"s3://{self.bucket}"
        try:
            client = s3_client(None)
            endpoint = (
                None if _USUAL.fullmatch(client.meta.endpoint_url) else client.meta.endpoint_url
            )
            try:
                answer = client.head_bucket(Bucket=self.bucket)["ResponseMetadata"]
            except ClientError as error:
                answer = error.response.get("ResponseMetadata", {})
            status = int(answer.get("HTTPStatusCode", 0))
            where = answer.get("HTTPHeaders", {}).get("x-amz-bucket-region")
            region = where or client.meta.region_name or _DEFAULT_REGION
            if region != client.meta.region_name:
                client = s3_client(region)
        except NoCredentialsError as error:
            raise SinkRefused(
                f"{name}: no AWS credentials are found: give this process a role, a profile "
                f"(AWS_PROFILE) or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from error
        except BotoCoreError as error:
            raise StoreError(f"{name} can't be reached: {error}") from error
        at = f" at {endpoint}" if endpoint else ""
        if status >= 500 or not status:
            raise StoreError(f"{name} does not answer{at}: HTTP status {status}")
        if status == 404:
            raise SinkRefused(
                f"{name}: there is no such bucket{at}: create it, or correct the name"
            )
        if status == 400:
            raise SinkRefused(
                f"{name}: the credentials are refused{at}: see whether they have expired, and "
                f"whether the clock is right"
            )
        return client, BucketPlace(region, endpoint)


def asked(what: str, ask: Callable[[], T]) -> T:
    """One request.

    Args:
        what: can't be done if it fails, for the error.

    Raises:
        StoreError: S3 refused it, or did not answer.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow to import

    try:
        return ask()
    except ClientError as error:
        answer = error.response.get("Error", {})
        code = str(answer.get("Code", ""))
        raise StoreError(f"{what}: {code} {answer.get('Message', '')}".rstrip(), code) from error
    except BotoCoreError as error:
        raise StoreError(f"{what}: {error}") from error


def s3_client(region: str | None, given: Mapping[str, str] = MappingProxyType({})) -> Any:
    """A client of S3 that does not wait for ever.

    Args:
        region: None = as it is configured.
        given: of an endpoint and of keys, as botocore names them; else they are found.
    """
    import botocore.session  # noqa: PLC0415 - slow to import, for S3 alone
    from botocore.config import Config  # noqa: PLC0415

    session = botocore.session.get_session()
    known = region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    where = {"region_name": known or _DEFAULT_REGION, **given}
    config = Config(
        connect_timeout=5,
        read_timeout=30,
        retries={"mode": "standard", "total_max_attempts": 4},
        max_pool_connections=16,
    )
    client = session.create_client("s3", config=config, **where)
    if _USUAL.fullmatch(client.meta.endpoint_url):
        return client
    # Other stores seldom have a host name for each bucket.
    config = config.merge(Config(s3={"addressing_style": "path"}))
    return session.create_client("s3", config=config, **where)


def require_buckets(config: SparkConfig) -> dict[str, BucketPlace]:
    """See whether every place in S3 that the file names can be used; how their buckets are reached.

    What a worker does there is done once: list, make an object that must be new, make it again,
    read and remove it. The second time must fail, since each commit of a table rests on that.

    Raises:
        SinkRefused: one can't; the message names the key and says what to do.
    """
    found: dict[str, BucketPlace] = {}
    for key, text in (
        ("spark.sink.path", config.sink_path),
        ("spark.function.deadletter.path", config.letters_path),
        ("spark.deadletter.path", config.deadletter_path),
    ):
        if text is None or not is_s3(text):
            continue
        try:
            place = s3_place(text)
            found[place.bucket] = _examined(place, S3Access(place.bucket))
        except (OSError, ValueError, SinkRefused) as error:
            raise SinkRefused(f"{key}={text}: {error}") from error
    return found


def _examined(place: S3Place, access: S3Access) -> BucketPlace:
    reach = access.reach
    key = place.key(f"{PENDING}/probe-{uuid.uuid4().hex}")
    try:
        next(access.list(place.key(f"{PENDING}/")), None)
        access.put(key, b"", is_new=True)
        is_exclusive = _refuses(access, key)
        access.get(key)
        access.delete(key)
    except StoreError as error:
        raise SinkRefused(f"{error}{_advice(error.code, place)}") from error
    if not is_exclusive:
        raise SinkRefused(
            f"the store ignores If-None-Match, so two workers could write the same version of a "
            f"table: use one that has conditional writes, as Amazon S3 and MinIO have{_at(reach)}"
        )
    return reach


def _refuses(access: S3Access, key: str) -> bool:
    """True if an object is not made that is there."""
    try:
        access.put(key, b"", is_new=True)
    except StoreError as error:
        if error.code in TAKEN:
            return True
        raise
    return False


def _advice(code: str, place: S3Place) -> str:
    if code in _DENIED:
        return f": allow {_NEEDED} {place}/"
    if code in _BAD_KEYS:
        return ": the credentials are wrong or have expired; renew them"
    return ""


def _at(reach: BucketPlace) -> str:
    return f" (endpoint {reach.endpoint})" if reach.endpoint else ""
