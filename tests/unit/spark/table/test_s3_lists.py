"""Lists of S3 whose pages do not end, from a store that answers as no store should."""

import itertools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from kcl_mld.spark.table import s3_access
from kcl_mld.spark.table.s3_access import S3Access, StoreError

#: Then the store says that this was the last page: a test that fails must end, too.
_ENOUGH = 30


def _page(number, more):
    entry = (
        f"<Contents><Key>table/{number}</Key><Size>1</Size>"
        "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
    )
    return f"<ListBucketResult>{entry}{more}</ListBucketResult>".encode()


class PageStore:
    """A store whose lists go on as a test says.

    Attributes:
        more: for each number of a page, what stands behind its entries.
        asked: continuation tokens of the requests for lists; None = from the beginning.
        url: where it listens.
    """

    def __init__(self):
        self.more = lambda number: f"<IsTruncated>false</IsTruncated><!-- {number} -->"
        self.asked = []
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self._answer(b"")

            def do_GET(self):
                number = len(store.asked)
                store.asked.append(parse_qs(urlsplit(self.path).query).get("continuation-token"))
                self._answer(_page(number, store.more(number) if number < _ENOUGH else ""))

            def _answer(self, body):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def store(monkeypatch, tmp_path):
    for name, text in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, text)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"):
        monkeypatch.delenv(name, raising=False)
    with PageStore() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", store.url)
        yield store


def _goes_on(token):
    return f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"


def test_pages_are_read_to_the_last(store):
    store.more = lambda number: _goes_on(f"to-{number + 1}") if number < 3 else ""
    found = S3Access("tables").list("table/")
    assert [each.key for each in found] == [f"table/{number}" for number in range(4)]
    assert store.asked == [None, ["to-1"], ["to-2"], ["to-3"]]


@pytest.mark.parametrize(
    ("more", "requests", "text"),
    [
        pytest.param(_goes_on("here"), 2, "goes on where it began", id="its own token"),
        pytest.param("<IsTruncated>true</IsTruncated>", 1, "does not say where", id="no token"),
        pytest.param(_goes_on(""), 1, "does not say where", id="an empty token"),
    ],
)
@pytest.mark.parametrize("is_flat", [False, True])
def test_a_page_that_cannot_be_followed_is_an_error(store, more, requests, text, is_flat):
    store.more = lambda _: more
    found = S3Access("tables").list("table/", is_flat=is_flat)
    with pytest.raises(StoreError, match=rf"^s3://tables: can't list table/: .*{text}"):
        list(found)
    assert len(store.asked) == requests


def test_pages_that_never_end_are_given_up(store, monkeypatch):
    monkeypatch.setattr(s3_access, "_MOST_PAGES", 5, raising=False)
    tokens = itertools.count()
    store.more = lambda _: _goes_on(next(tokens))
    with pytest.raises(StoreError, match="does not end: 5 pages were read"):
        list(S3Access("tables").list("table/"))
    assert len(store.asked) == 5


def test_a_list_of_exactly_the_most_pages_is_read(store, monkeypatch):
    monkeypatch.setattr(s3_access, "_MOST_PAGES", 4, raising=False)
    store.more = lambda number: _goes_on(f"to-{number + 1}") if number < 3 else ""
    assert len(list(S3Access("tables").list("table/"))) == 4
