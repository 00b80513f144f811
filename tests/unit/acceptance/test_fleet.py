"""Processes of a fleet: none is left behind, and nobody else's is killed."""

import contextlib
import signal
import subprocess

import pytest

from kcl_mld.acceptance import fleet
from kcl_mld.acceptance.fleet import RunFleet
from kcl_mld.acceptance.recording import RunRecording


class Budget:
    """Without an end; nothing is waited for."""


@pytest.fixture
def killed_groups(monkeypatch):
    """The process groups that were killed; they are."""
    killed, kill = [], fleet.os.killpg

    def killpg(group, number):
        killed.append(group)
        kill(group, number)

    monkeypatch.setattr(fleet.os, "killpg", killpg)
    return killed


def test_a_group_is_killed_only_while_its_id_is_that_of_the_keeper(tmp_path, killed_groups):
    recording = RunRecording(tmp_path / "recording.jsonl")
    with RunFleet("app", "records", {}, tmp_path, Budget(), recording) as workers:
        ended = workers.start("w1", ("true",))
        assert ended.keeper.wait(60) == 0
        running = workers.start("w2", ("tail", "-f"))
        assert running.is_running
    assert killed_groups == [running.keeper.pid]
    assert running.keeper.returncode == -signal.SIGKILL


def test_a_worker_whose_start_is_interrupted_is_killed(tmp_path, monkeypatch):
    class Interrupted(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.stdout = InterruptedPipe(self.stdout)
            keepers.append(self)

    class InterruptedPipe:
        def __init__(self, pipe):
            self.pipe = pipe

        def readline(self):
            raise KeyboardInterrupt

        def __getattr__(self, name):
            return getattr(self.pipe, name)

    keepers = []
    recording = RunRecording(tmp_path / "recording.jsonl")
    monkeypatch.setattr(fleet.subprocess, "Popen", Interrupted)
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            RunFleet("app", "records", {}, tmp_path, Budget(), recording) as workers,
        ):
            workers.start("w1", ("tail", "-f"))
        assert keepers[0].returncode == -signal.SIGKILL
    finally:
        for keeper in keepers:
            with contextlib.suppress(ProcessLookupError):
                keeper.kill()
            keeper.communicate()
