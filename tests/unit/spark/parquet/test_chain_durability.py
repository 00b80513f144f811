"""Nothing that the parquet sink calls durable can be lost by a loss of power."""

import pytest

from mld.spark.parquet import chain_files, chain_layout
from tests.sim_spark.stores import Chain
from tests.unit.spark.batches import batch, shard


class Killed(BaseException):
    """The thread, or the process, goes no further."""


@pytest.fixture
def synced(monkeypatch):
    """Directories whose names were made durable; a test may forget them."""
    found = []
    real = chain_files.sync_directory

    def sync(directory):
        real(directory)
        found.append(directory)

    monkeypatch.setattr(chain_files, "sync_directory", sync)
    return found


def publish_only(sink, monkeypatch, each):
    """A commit that ends between the rename and the wait for the disk."""
    with monkeypatch.context() as patch:

        def sync(directory):
            if (directory / chain_layout.link_name(each.after)).exists():
                raise Killed

        patch.setattr(chain_files, "sync_directory", sync)
        staged = sink.write([each], [each])
        with pytest.raises(Killed):
            sink.commit(staged, each)


@pytest.mark.parametrize("is_new_process", [True, False])
def test_a_mark_is_durable_even_if_its_commit_never_waited_for_the_disk(
    tmp_path, monkeypatch, synced, is_new_process
):
    chain = Chain(tmp_path)
    sink = chain.open()
    each = batch(shard(), None, 30)
    publish_only(sink, monkeypatch, each)
    sink = chain.open() if is_new_process else sink
    synced.clear()
    assert sink.mark(each.shard) == each.to
    directory = tmp_path / chain_layout.shard_path(each.shard)
    assert synced == [directory, *directory.parents][: synced.index(tmp_path) + 1]
    assert directory in synced


def test_a_shard_without_a_chain_has_no_mark_and_nothing_to_wait_for(tmp_path, synced):
    sink = Chain(tmp_path).open()
    synced.clear()
    assert sink.mark(shard()) is None
    assert synced == []
