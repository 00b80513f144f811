"""The guardian: ends the children's sessions when the daemon is gone. Run as a script.

Started by :mod:`kcl_mld.children.adapters.guardian` as ``python -I -S guardian_main.py`` in a session
of its own. It imports as little as possible, because every daemon pays for its memory, and nothing
of ``kcl_mld``.

Its stdin is a pipe that only the daemon holds open. Lines on it are ``+N`` (session N was started)
and ``-N`` (its leader has been reaped). However the daemon ends, kill -9 included, the pipe closes.
The sessions then get a moment to notice their own end of file, then SIGTERM, then SIGKILL. A
process that left its session (a daemon that calls setsid) is not ended, by design.
"""

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds from the daemon's death until SIGTERM: children that read their stdin end by themselves.
EOF_S = 1.5

#: From SIGTERM until SIGKILL.
TERM_S = 1.0

#: How often remaining processes are listed.
LOOK_S = 0.05

#: SIGKILL is repeated for this many seconds, because a process that forks all the time may be
#: missed. One that forks again within a millisecond may escape; only a cgroup could prevent that.
KILL_S = 2.0

#: Pause between two rounds of SIGKILL.
KILL_PAUSE_S = 0.002

#: This many lists in a row must be empty, for the same reason.
LOOKS = 4

#: When the table grows beyond this, sessions that have ended by themselves are removed.
TIDY_AT = 64


def members(sessions: set[int]) -> "Iterator[tuple[int, int]]":
    """Living processes of these sessions as (pid, session), without zombies.

    Without /proc (macOS, BSD), the sessions' process groups are used instead.
    """
    try:
        names = os.listdir("/proc")
    except OSError:
        yield from ((-session, session) for session in sorted(sessions) if _group_lives(session))
        return
    for name in reversed(names):  # youngest first: those are the ones that fork all the time
        if name.isdigit():
            pid = int(name)
            try:
                session = os.getsid(pid)  # some twenty times cheaper than opening a file for each
            except OSError:
                continue  # it ended meanwhile
            if session in sessions and not _is_zombie(pid):
                yield pid, session


def _is_zombie(pid: int) -> bool:
    """Whether it has ended and waits to be reaped; True also if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except (OSError, IndexError):
        return True


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


class Watch:
    """The sessions to end."""

    def __init__(self) -> None:
        self.led: set[int] = (
            set()
        )  # with a leader that the daemon has not reaped: the number is in use
        self.orphaned: set[int] = set()  # the leader is reaped; members may be left

    def obey(self, line: bytes) -> None:
        """Process one line from the daemon; anything else than +N and -N is ignored."""
        sign, number = line[:1], line[1:]
        if not number.isdigit():
            return
        if sign == b"+":
            self.led.add(int(number))
            self.orphaned.discard(int(number))
        elif sign == b"-" and int(number) in self.led:
            self.led.discard(int(number))
            self.orphaned.add(int(number))
            if len(self.orphaned) >= TIDY_AT:
                self.left()

    def left(self) -> list[int]:
        """Processes to end. Forgets the orphaned sessions that are empty or no longer ours.

        The kernel does not reuse a session's number while the session has a member. So a process
        with the number of a session whose leader was reaped leads another one: the number was free
        in between, and our session is empty.
        """
        living = list(members(self.led | self.orphaned))
        pids = {pid for pid, _ in living}
        self.orphaned = {s for _, s in living if s in self.orphaned and s not in pids}
        return [pid for pid, session in living if session in self.led or session in self.orphaned]


def end(watch: Watch) -> None:
    """End the remaining processes, SIGTERM first.

    Returns when none is left, or after the time limit.
    """
    if wait_empty(watch, EOF_S):
        return
    send(watch.left(), signal.SIGTERM)
    if wait_empty(watch, TERM_S):
        return
    until = time.monotonic() + KILL_S
    while time.monotonic() < until:
        for pid, _ in members(watch.led | watch.orphaned):
            send([pid], signal.SIGKILL)  # at once: it may fork and end before the list is complete
        if is_empty(watch):
            return
        time.sleep(KILL_PAUSE_S)


def is_empty(watch: Watch) -> bool:
    """Whether no process is left, checked repeatedly."""
    return not any(watch.left() for _ in range(LOOKS))


def wait_empty(watch: Watch, seconds: float) -> bool:
    """Whether no process was left within this time."""
    until = time.monotonic() + seconds
    while not is_empty(watch):
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_S)
    return True


def send(pids: list[int], number: signal.Signals) -> None:
    """Signal processes; those that are gone or not ours to signal are skipped."""
    for pid in pids:
        try:  # noqa: SIM105 - contextlib would be one more import
            os.kill(pid, number)
        except OSError:
            pass


def main() -> None:
    """Read until the pipe closes, then end the sessions."""
    for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
        number = getattr(signal, f"SIG{name}")
        signal.signal(number, signal.SIG_IGN)
    watch = Watch()
    rest = b""
    while True:
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            watch.obey(line)
    end(watch)


if __name__ == "__main__":
    main()
