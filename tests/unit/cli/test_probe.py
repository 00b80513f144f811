"""``kcl-mld probe`` says by its exit code what a page says by its own."""

import http.server
import socket
import threading

import pytest

from kcl_mld.cli import dispatch
from kcl_mld.cli.options import HTTP_VARIABLE


class Pages(http.server.BaseHTTPRequestHandler):
    """A worker that lives, and is not ready."""

    def do_GET(self):
        code = 200 if self.path == "/livez" else 503
        self.send_response(code)
        self.end_headers()
        self.wfile.write(b'{"page": "%s"}\n' % self.path.encode())

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def port():
    with http.server.HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_worker_that_lives_gives_0(port, capsys):
    assert dispatch(["probe", "--http", f"127.0.0.1:{port}"]) == 0
    assert capsys.readouterr().out == '{"page": "/livez"}\n'


def test_a_worker_that_is_not_ready_gives_1_and_says_why(port, capsys):
    assert dispatch(["probe", "--ready", "--http", f"127.0.0.1:{port}"]) == 1
    assert capsys.readouterr().out == '{"page": "/readyz"}\n'


def test_the_address_of_the_worker_is_that_of_the_variable(port, monkeypatch, capsys):
    """It listens on every address; it is asked on loopback."""
    monkeypatch.setenv(HTTP_VARIABLE, f"0.0.0.0:{port}")
    assert dispatch(["probe"]) == 0
    assert "/livez" in capsys.readouterr().out


def test_nobody_who_listens_gives_1(capsys):
    with socket.socket() as one:  # bound, so that nobody else is there, and not listening
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
        assert dispatch(["probe", "--http", address]) == 1
    assert capsys.readouterr().err == f"no answer for /livez from {address}: Connection refused\n"


def test_what_is_no_http_gives_1(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-x\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert dispatch(["probe", "--http", f"127.0.0.1:{server.getsockname()[1]}"]) == 1
        thread.join()
    assert "SSH-2.0-x" in capsys.readouterr().err


def test_an_address_is_required(monkeypatch, capsys):
    monkeypatch.delenv(HTTP_VARIABLE, raising=False)
    assert dispatch(["probe"]) == 2
    assert "Missing option '--http'" in capsys.readouterr().err
