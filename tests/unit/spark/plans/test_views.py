"""Names that functions make in the session: who may share it, and who has to wait."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
from pyspark.sql.connect.proto import base_pb2, commands_pb2

from mld.spark.plans.views import RowsNamed, Views

WAIT_S = 10.0


class Client:
    """Of a session; keeps what reaches the server."""

    def __init__(self):
        self.said = []

    def execute_command(self, command):
        self.said.append(command)

    def _execute(self, request):
        self.said.append(request)


class RowsPlaceholder:
    def __init__(self, plan_id):
        self.plan_id = plan_id


def view(name, end, plan_id=7):
    command = commands_pb2.Command()
    command.create_dataframe_view.name = name
    command.create_dataframe_view.input.range.end = end
    command.create_dataframe_view.input.common.plan_id = plan_id
    return command


def statement(text):
    command = commands_pb2.Command()
    command.sql_command.input.sql.query = text
    return command


def registered(name, code):
    request = base_pb2.ExecutePlanRequest()
    request.plan.command.register_function.function_name = name
    request.plan.command.register_function.python_udf.command = code
    return request


@pytest.fixture
def watched():
    views, client = Views(), Client()
    placeholders = [RowsPlaceholder(1), RowsPlaceholder(2)]
    for number, placeholder in enumerate(placeholders):
        views.note(client, placeholder, f"batch-{number}")
    return SimpleNamespace(views=views, client=client, placeholders=placeholders)


def test_the_same_view_may_be_made_by_all(watched):
    with watched.views.share() as together:
        assert together
        watched.client.execute_command(view("names", 3, plan_id=8))
        watched.client.execute_command(view("names", 3, plan_id=9))
    assert len(watched.client.said) == 2
    assert not watched.views.alone


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (view("names", 3), view("NAMES", 4)),
        (
            statement("create or replace temp view v as select 1"),
            statement("CREATE VIEW v AS SELECT 2"),
        ),
        (statement("set var x = 1"), statement("set variable x = 2")),
        (statement("declare x int"), statement("declare or replace variable x int default 1")),
    ],
    ids=str,
)
def test_a_name_that_means_something_else_is_held_back(watched, first, second):
    with watched.views.share():
        watched.client.execute_command(first)
        with pytest.raises(RowsNamed):
            watched.client.execute_command(second)
    assert watched.client.said == [first]
    with watched.views.share() as together:
        assert not together


def test_a_function_that_knows_its_shard_is_held_back(watched):
    with watched.views.share():
        watched.client._execute(registered("whose", b"a"))
        with pytest.raises(RowsNamed):
            watched.client._execute(registered("whose", b"b"))
    assert watched.views.alone


def test_a_view_of_a_batch_is_held_back_at_once_and_passes_in_its_turn(watched):
    mine, other = view("rows", 3, plan_id=1), view("rows", 3, plan_id=2)
    with watched.views.share(), pytest.raises(RowsNamed):
        watched.client.execute_command(mine)
    with watched.views.turn("batch-0"):
        watched.client.execute_command(mine)
        with pytest.raises(RowsNamed):
            watched.client.execute_command(other)
    assert watched.client.said == [mine]


def test_a_name_is_free_again_once_nobody_can_look_it_up(watched):
    for end in (3, 4):
        with watched.views.share():
            watched.client.execute_command(view("few", end))
    assert not watched.views.alone


def test_what_names_nothing_and_what_a_sink_names_passes(watched):
    with watched.views.share():
        for end in (3, 4):
            watched.client.execute_command(view("kcl_mld_x", end))
            watched.client.execute_command(statement(f"select {end} as created"))
            watched.client.execute_command(commands_pb2.Command())
    assert len(watched.client.said) == 6


def test_names_of_others_are_not_judged(watched):
    watched.client.execute_command(view("mine", 1))
    watched.client.execute_command(view("mine", 2))
    assert len(watched.client.said) == 2


def test_a_turn_waits_until_nobody_shares(watched):
    has_turn = threading.Event()

    def take():
        with watched.views.turn("batch-0"):
            has_turn.set()

    with watched.views.share():
        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        assert not has_turn.wait(0.05)
    assert has_turn.wait(WAIT_S)
    thread.join(WAIT_S)


@pytest.fixture
def hasty_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.untraced
@pytest.mark.usefixtures("hasty_threads")
def test_a_name_is_judged_while_other_batches_begin(watched):
    """A set that grows while it is looked through ended a shard, and its function was blamed."""
    is_over = threading.Event()
    kept = []

    def begin():
        while not is_over.is_set() and len(kept) < 30_000:
            kept.append(RowsPlaceholder(100 + len(kept)))
            watched.views.note(watched.client, kept[-1], "other")

    thread = threading.Thread(target=begin, daemon=True)
    with watched.views.share():
        thread.start()
        try:
            for _ in range(200):
                watched.client.execute_command(view("names", 3, plan_id=8))
        finally:
            is_over.set()
            thread.join(WAIT_S)
    assert len(watched.client.said) == 200
