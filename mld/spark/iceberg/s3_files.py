"""Files of a table in S3: whole objects, by the credentials that every AWS client here uses.

pyarrow's own client of S3 knows environment, file and instance, and neither a process, nor SSO, nor
a role of a profile; and it asks for each file whether it is there. Here botocore finds and renews
credentials, and a file is one request. What a catalog hands out for a table comes first.
"""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from kcl_mld.spark.iceberg.local_files import LocalFiles
from kcl_mld.spark.table.s3_access import MISSING, StoreError, asked, s3_client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyiceberg.io import InputStream, OutputStream

#: Properties of pyiceberg that are understood here; with others pyarrow's client is used.
REGION, ENDPOINT = "s3.region", "s3.endpoint"
KEY_ID, SECRET, TOKEN = "s3.access-key-id", "s3.secret-access-key", "s3.session-token"
UNDERSTOOD = frozenset({REGION, ENDPOINT, KEY_ID, SECRET, TOKEN})
#: The same for all services of AWS.
_FOR_ALL = {each: each.replace("s3.", "client.") for each in (REGION, KEY_ID, SECRET, TOKEN)}
_SCHEMES = frozenset({"s3", "s3a", "s3n"})


class _Reach(NamedTuple):
    """How S3 is reached; what is None is found as every AWS client finds it."""

    region: str | None
    endpoint: str | None
    key_id: str | None
    secret: str | None
    token: str | None


@functools.lru_cache(maxsize=32)
def client_for(reach: _Reach) -> Any:
    """One client for all tables that are reached so."""
    given = {
        "endpoint_url": reach.endpoint,
        "aws_access_key_id": reach.key_id,
        "aws_secret_access_key": reach.secret,
        "aws_session_token": reach.token,
    }
    return s3_client(reach.region, {name: text for name, text in given.items() if text})


class S3File(InputFile, OutputFile):
    """An object that is read, or written once. Names are new each time, so no write asks for one."""

    def __init__(self, location: str, client: Callable[[], Any]) -> None:
        super().__init__(location)
        _, _, place = location.partition("://")
        self._bucket, _, self._key = place.partition("/")
        self._client = client
        self._size: int | None = None

    def __len__(self) -> int:
        """In bytes; asked only for what was neither read nor written here."""
        if self._size is None:
            self._size = int(self._asked("look at", "head_object")["ContentLength"])
        return self._size

    def exists(self) -> bool:
        """Whether it is there."""
        try:
            self._asked("look at", "head_object")
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - theirs
        """All of it.

        Raises:
            FileNotFoundError: it is not there.
            StoreError: it can't be read.
        """
        del seekable
        content = self._asked("read", "get_object", lambda answer: answer["Body"].read())
        self._size = len(content)
        return io.BytesIO(content)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - theirs
        """Write it; it is there once the stream is closed."""
        del overwrite
        return _Upload(self)

    def put(self, content: bytes) -> None:
        """Make the object.

        Raises:
            StoreError: it may be there or not.
        """
        self._asked("write", "put_object", Body=content)
        self._size = len(content)

    def delete(self) -> None:
        """Remove the object; quiet if it is gone.

        Raises:
            StoreError: it may be there or not.
        """
        self._asked("delete", "delete_object")

    def to_input_file(self) -> S3File:
        """The same, to be read."""
        return self

    def _asked(
        self, what: str, call: str, then: Callable[[Any], Any] = lambda answer: answer, **more: Any
    ) -> Any:
        client = self._client()
        try:
            return asked(
                f"can't {what} {self.location}",
                lambda: then(getattr(client, call)(Bucket=self._bucket, Key=self._key, **more)),
            )
        except StoreError as error:
            if error.code in MISSING:
                raise FileNotFoundError(f"{self.location} is not there") from error
            raise


class _Upload:
    """A stream whose content becomes an object when it is closed; an error before makes none."""

    def __init__(self, file: S3File) -> None:
        self._file = file
        self._content = io.BytesIO()

    @property
    def closed(self) -> bool:
        return self._content.closed

    def write(self, data: bytes) -> int:
        return self._content.write(data)

    def tell(self) -> int:
        return self._content.tell()

    def flush(self) -> None:
        """Nothing is written before the end."""

    def close(self) -> None:
        if not self._content.closed:
            with self._content:
                self._file.put(self._content.getvalue())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._content.close()


class TableFiles(FileIO):
    """All files of a table: in S3, on this machine, or where pyarrow reaches them."""

    def __init__(self, properties: Mapping[str, Any] = {}) -> None:
        super().__init__(dict(properties))
        named = [
            self.properties.get(each) or self.properties.get(_FOR_ALL.get(each, ""))
            for each in (REGION, ENDPOINT, KEY_ID, SECRET, TOKEN)
        ]
        self._client = functools.partial(client_for, _Reach(*named))

    def new_input(self, location: str) -> InputFile:
        """A file to be read."""
        if _scheme(location) in _SCHEMES:
            return S3File(location, self._client)
        return self._others(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to be written."""
        if _scheme(location) in _SCHEMES:
            return S3File(location, self._client)
        return self._others(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file; quiet if it is gone."""
        name = location if isinstance(location, str) else location.location
        if _scheme(name) in _SCHEMES:
            S3File(name, self._client).delete()
        else:
            self._others(name).delete(name)

    def _others(self, location: str) -> FileIO:
        if _scheme(location) in ("", "file"):
            return LocalFiles(self.properties)
        return PyArrowFileIO(self.properties)


def _scheme(location: str) -> str:
    return location.partition("://")[0] if "://" in location else ""
