"""What ends a host, whenever it comes."""

import socket

from kcl_mld.spark.worker.host_loop import End, HostLoop
from kcl_mld.spark.worker.host_stubs import Start


class Daemon:
    """Lives on; ``meanwhile`` happens while somebody looks at it."""

    descriptor = None

    def __init__(self):
        self.meanwhile = lambda: None

    def has_ended(self):
        self.meanwhile()
        return False


def test_a_request_to_end_that_comes_during_a_look_around_is_not_lost(tmp_path):
    """A SIGTERM is handled in another thread than the one that looks."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "host.sock"))
        listener.listen()
        daemon = Daemon()
        loop = HostLoop(
            listener, str(tmp_path / "host.lock"), daemon, None, Start(), None, None, linger_s=3.0
        )
        told = End.because("told to end")
        daemon.meanwhile = lambda: loop.request_end(told)
        assert loop.run() is told
