"""The number of a batch in a directory: once, durably, never back."""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import replace

import pytest

from mld.spark.errors import BatchFailed, Fenced, SparkConfigError
from mld.spark.intents.file import FileIntentStore
from mld.spark.intents.stores import make_intent_store
from mld.spark.model import Position, WriteIntent
from tests.unit.spark.batches import config_of, shard

BIG = 49590338271490256608559692538361571095921575989136588898


def intent(number: int, app_id: str = "kcl/app/n0") -> WriteIntent:
    after = Position(BIG + number - 1, 2) if number > 1 else None
    return WriteIntent(number, after, Position(BIG + number, 3), app_id)


@pytest.fixture
def store(tmp_path):
    return FileIntentStore(str(tmp_path))


def files(root) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def test_a_shard_without_a_file_has_no_intent(store):
    assert store.load(shard()) is None


def test_the_newest_intent_is_read_back_whole(store, tmp_path):
    store.store(shard(), intent(1))
    store.store(shard(), intent(2))
    assert FileIntentStore(str(tmp_path)).load(shard()) == intent(2)


def test_each_shard_stream_application_and_epoch_counts_for_itself(store):
    store.store(shard(0), intent(5))
    for other in (shard(1), shard(0, application="b"), shard(0, epoch="1")):
        assert store.load(other) is None
    assert store.load(replace(shard(0), stream="other")) is None


@pytest.mark.parametrize("name", ["../up", "a/b", "..", ".", "", "ü ", "%2e"])
def test_odd_names_stay_below_the_directory_and_apart(store, tmp_path, name):
    odd = shard(application=name)
    store.store(odd, intent(1))
    assert store.load(odd) == intent(1)
    assert store.load(shard(application=name + "x")) is None
    (found,) = list(tmp_path.rglob("*.json"))
    assert len(found.relative_to(tmp_path).parts) == 5


def test_the_same_intent_twice_is_one(store):
    store.store(shard(), intent(1))
    store.store(shard(), intent(1))
    assert store.load(shard()) == intent(1)


def test_another_intent_of_the_same_number_is_fenced(store):
    store.store(shard(), intent(1))
    with pytest.raises(Fenced, match="number 1"):
        store.store(shard(), intent(1, "kcl/app/other"))
    assert store.load(shard()) == intent(1)


def test_a_lower_number_is_fenced_even_if_its_file_was_pruned(store, tmp_path):
    for number in (1, 2, 3, 4):
        store.store(shard(), intent(number))
    assert files(tmp_path) == [f"{3:020}.json", f"{4:020}.json"]
    with pytest.raises(Fenced, match="number 4"):
        store.store(shard(), intent(1))
    assert store.load(shard()) == intent(4)


@pytest.mark.parametrize("moment", ["uuid4", "link"])
def test_a_writer_overtaken_after_its_look_is_fenced(store, tmp_path, monkeypatch, moment):
    """Before its temporary file is made, or just before it is linked."""
    store.store(shard(), intent(1))
    rival, done = FileIntentStore(str(tmp_path)), []
    module = uuid if moment == "uuid4" else os
    original = getattr(module, moment)

    def slow(*arguments):
        if not done:
            done.append(True)
            for number in (2, 3, 4, 5):
                rival.store(shard(), intent(number, "kcl/app/rival"))
        return original(*arguments)

    monkeypatch.setattr(module, moment, slow)
    with pytest.raises(Fenced, match="number 5"):
        store.store(shard(), intent(2))
    assert store.load(shard()) == intent(5, "kcl/app/rival")


def test_a_directory_that_vanishes_is_told(store, monkeypatch):
    def gone(*_):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "link", gone)
    with pytest.raises(BatchFailed, match="No such file"):
        store.store(shard(), intent(1))


def test_of_many_writers_of_one_number_exactly_one_wins(tmp_path):
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def race(name: str) -> None:
        mine = FileIntentStore(str(tmp_path))
        start.wait()
        try:
            mine.store(shard(), intent(1, name))
        except Fenced:
            return
        outcomes.append(name)

    threads = [threading.Thread(target=race, args=(f"w{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 1
    assert FileIntentStore(str(tmp_path)).load(shard()).app_id == outcomes[0]


def test_what_a_dead_writer_left_is_swept_with_the_old_numbers(store, tmp_path):
    store.store(shard(), intent(1))
    directory = next(tmp_path.rglob("*.json")).parent
    (directory / f".{1:020}.dead.tmp").write_text("{")
    (directory / "notes.txt").write_text("of a person")
    for number in (2, 3):
        store.store(shard(), intent(number))
    assert files(tmp_path) == [f"{2:020}.json", f"{3:020}.json", "notes.txt"]


@pytest.mark.parametrize("text", ["", "{}", '{"number":1,"after":"start","to":"start","appId":""}'])
def test_a_broken_file_is_named(store, tmp_path, text):
    store.store(shard(), intent(1))
    next(tmp_path.rglob("*.json")).write_text(text)
    with pytest.raises(BatchFailed, match=r"0001\.json: no intent .* spark\.sink\.epoch"):
        store.load(shard())


def test_a_file_that_is_pruned_while_it_is_read_is_not_missed(store, monkeypatch):
    store.store(shard(), intent(1))
    listings = [[f"{7:020}.json"], [f"{1:020}.json"]]
    monkeypatch.setattr(os, "listdir", lambda _: listings.pop(0))
    assert store.load(shard()) == intent(1)


def test_a_directory_that_never_holds_still_is_an_error(store, monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda _: [f"{7:020}.json"])
    with pytest.raises(BatchFailed, match="faster than they can be read"):
        store.load(shard())


def test_a_place_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BatchFailed, match=r"spark\.intent\.path: .*file.*all workers share"):
        FileIntentStore(str(tmp_path / "file"))


def test_a_full_disk_is_told(store, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BatchFailed, match="No space left on device"):
        store.store(shard(), intent(1))
    monkeypatch.undo()
    assert store.load(shard()) is None


def test_the_store_is_made_from_the_properties(tmp_path):
    config = config_of(intent__store="file", intent__path=f"file://{tmp_path}/x")
    store = make_intent_store(config, "app")
    assert store is not None
    store.store(shard(), intent(1))
    assert (tmp_path / "x" / "app" / "flights").is_dir()


@pytest.mark.parametrize("word", ["lease", "none"])
def test_lease_and_none_have_no_store_of_their_own(word):
    assert make_intent_store(config_of(intent__store=word), "app") is None


def test_the_file_store_needs_a_path():
    with pytest.raises(SparkConfigError, match=r"spark\.intent\.path"):
        make_intent_store(config_of(intent__store="file"), "app")


def test_an_object_store_is_no_directory():
    config = config_of(intent__store="file", intent__path="s3a://bucket/x")
    with pytest.raises(SparkConfigError, match=r"spark\.intent\.store=dynamodb"):
        make_intent_store(config, "app")
