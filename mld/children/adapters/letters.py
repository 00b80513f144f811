"""Where dead letters are stored: a folder, an S3 bucket, or an SQS queue."""

from __future__ import annotations

import logging
import os
import re
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from kcl_mld.aws.clients import ClientSettings
from kcl_mld.aws.whole_answers import BrokenAnswer
from kcl_mld.errors import ConfigError, LetterRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kcl_mld.children.ports import LetterStore
    from kcl_mld.kernel.adapters.calls import CallPool

log = logging.getLogger("mld.children")

_KEY = "onFailureDestination"
_CONNECT_S = 5.0
_READ_S = 20.0
#: Host names of the public SQS endpoints; queues elsewhere use the worker's region.
_SQS_REGION = re.compile(r"sqs(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.com|api\.aws)")
#: Files in the root of a container.
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_ROOT = "/"


class Letters(Protocol):
    """Dead letters that can be read; files beside them hold what was done about them."""

    def names(self) -> list[str]:
        """Names of the files, sorted.

        Raises:
            LetterRefused: they can't be listed; the other methods raise it likewise.
        """
        ...

    def read(self, name: str) -> bytes:
        """The content of a file."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file durably."""
        ...


class FolderLetters:
    """One file per letter, named by its id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the folder if it does not exist, and warn if it is lost when its container ends.

        Raises:
            ConfigError: files can't be created in it.
        """
        folder = self.folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: {error.strerror}", key=_KEY) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"{folder}: may not be written", key=_KEY)
        is_container = any(map(os.path.exists, _CONTAINER_MARKS))
        if is_container and folder.stat().st_dev == Path(_ROOT).stat().st_dev:
            log.warning(
                "%s: %s is on the disk of this container and ends with it; use a volume, s3: or"
                " sqs:",
                _KEY,
                folder,
            )

    def names(self) -> list[str]:
        """Names of the files, sorted; see :class:`Letters` for errors."""
        with self._refusing():
            return sorted(one.name for one in self.folder.iterdir())

    def read(self, name: str) -> bytes:
        """The content of a file; see :class:`Letters` for errors."""
        with self._refusing():
            return (self.folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file and sync it and its folder to disk; see :class:`Letters` for errors."""
        path = self.folder / name
        unfinished = path.with_name(f".{name}.{os.getpid()}")

        def private(file: str, flags: int) -> int:
            return os.open(file, flags, 0o600)

        with self._refusing():
            try:
                with open(unfinished, "wb", opener=private) as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(path)
            except OSError:
                unfinished.unlink(missing_ok=True)  # a partial file would only use disk space
                raise
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LetterRefused(f"{self.folder}: {error.strerror or error}") from error


class BucketLetters:
    """One object per letter, named by its id."""

    def __init__(self, bucket: str, prefix: str, client: Any) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._client = client
        self._where = f"s3://{bucket}"

    def names(self) -> list[str]:
        """Names of the objects, sorted; see :class:`Letters` for errors."""
        found: list[str] = []
        more: dict[str, str] = {}
        with _refusing(self._where):
            while True:
                answer = self._client.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._prefix, Delimiter="/", **more
                )
                found += [
                    one["Key"].removeprefix(self._prefix) for one in answer.get("Contents", ())
                ]
                if not answer.get("NextContinuationToken"):
                    return sorted(found)
                more = {"ContinuationToken": answer["NextContinuationToken"]}

    def read(self, name: str) -> bytes:
        """The content of an object; see :class:`Letters` for errors."""
        with _refusing(self._where):
            answer = self._client.get_object(Bucket=self._bucket, Key=f"{self._prefix}{name}")
            return bytes(answer["Body"].read())

    def write(self, name: str, content: bytes) -> None:
        """Write an object; see :class:`Letters` for errors."""
        with _refusing(self._where):
            answer = self._client.put_object(
                Bucket=self._bucket,
                Key=f"{self._prefix}{name}",
                Body=content,
                ContentType="application/json",
            )
        if not answer.get("ETag"):
            raise LetterRefused(f"{self._where}: an answer that is none of S3")


class WrittenLetters:
    """A :class:`~kcl_mld.children.ports.LetterStore` of files."""

    def __init__(self, letters: Letters, pool: CallPool) -> None:
        self._letters = letters
        self._pool = pool

    async def put(self, letter_id: str, shard_id: str, document: bytes) -> None:
        """Store a letter as a file; see :class:`~kcl_mld.children.ports.LetterStore` for errors."""
        del shard_id
        await self._pool.run(self._letters.write, f"{letter_id}.json", document)


class QueueLetters:
    """One message per letter; a FIFO queue drops a message with an id that it had before."""

    def __init__(self, url: str, client: Any, pool: CallPool) -> None:
        self._url = url
        self._client = client
        self._pool = pool

    async def put(self, letter_id: str, shard_id: str, document: bytes) -> None:
        """Send a letter as a message; see :class:`~kcl_mld.children.ports.LetterStore` for errors."""
        ordered = {"MessageGroupId": shard_id, "MessageDeduplicationId": letter_id}
        with _refusing(self._url):
            answer = await self._pool.run(
                partial(
                    self._client.send_message,
                    QueueUrl=self._url,
                    MessageBody=document.decode(),
                    **(ordered if self._url.endswith(".fifo") else {}),
                )
            )
        if not answer.get("MessageId"):
            raise LetterRefused(f"{self._url}: an answer that is none of SQS")


@contextmanager
def _refusing(where: str) -> Iterator[None]:
    try:
        yield
    except (ClientError, BotoCoreError, BrokenAnswer) as error:
        raise LetterRefused(f"{where}: {error}") from error


def open_letters(
    destination: str,
    pool: CallPool,
    make_client: Callable[[ClientSettings], Any],
    region: str | None,
) -> LetterStore:
    """The store for a configured destination.

    Args:
        destination: a validated ``onFailureDestination``.
        region: of clients, unless the queue's URL names one.

    Raises:
        ConfigError: the folder can't be written, or a client can't be created.
    """
    found = find_letters(destination, make_client, region)
    if isinstance(found, FolderLetters):
        found.prepare()
    if found is not None:
        return WrittenLetters(found, pool)
    url = destination.partition(":")[2]
    named = _SQS_REGION.fullmatch(urlsplit(url).hostname or "")
    return QueueLetters(url, make_client(_settings("sqs", named[1] if named else region)), pool)


def find_letters(
    destination: str, make_client: Callable[[ClientSettings], Any], region: str | None
) -> FolderLetters | BucketLetters | None:
    """The readable letters of a destination; None = it is a queue.

    Otherwise like :func:`open_letters`.
    """
    scheme, _, rest = destination.partition(":")
    url = urlsplit(destination)
    if scheme == "file":
        return FolderLetters(Path(unquote(url.path) if rest.startswith("//") else rest))
    if scheme == "s3":
        return BucketLetters(url.netloc, url.path, make_client(_settings("s3", region)))
    return None


def _settings(service: str, region: str | None) -> ClientSettings:
    return ClientSettings(
        service=service,
        region=region,
        endpoint=None,
        threads=2,
        connect_timeout_s=_CONNECT_S,
        read_timeout_s=_READ_S,
        answers_json=service != "s3",
    )
