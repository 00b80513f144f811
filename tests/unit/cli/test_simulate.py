"""``kcl-mld simulate``."""

import json

import pytest

from kcl_mld.cli import dispatch
from kcl_mld.cli.simulate import Seconds, lasting_most
from kcl_mld.simulate.fleet import Sample

FAST = ["simulate", "--workers", "3", "--shards", "6", "--duration", "4m"]
ASKED = {
    "leases_by_group",
    "leases_by_worker",
    "time_to_balance_s",
    "moves",
    "duplicates",
    "requests_per_hour",
}


def run(capsys, *arguments):
    """Exit code, stdout and stderr of a fast simulation with more arguments."""
    code = dispatch([*FAST, *arguments])
    return code, *capsys.readouterr()


def test_the_timeline_and_the_figures_are_printed(capsys):
    code, out, err = run(capsys, "--profile", "java2", "--groups", "2", "--kill", "1@2m")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].split() == ["time", "event", "groupA", "groupB", "free", "moves"]
    assert any("2:00  1 worker is killed: " in line for line in lines)
    assert any("all shards are read again, after " in line for line in lines)
    assert "leases by worker:    3 to 3" in lines
    assert "longest time unread: " in out
    assert any(line.startswith("price per hour:      $0.") for line in lines)


def test_the_bound_of_a_worker_follows_from_the_answers_of_the_table(capsys):
    assert "renewed in time:     up to 6,616 leases of a worker\n" in run(capsys)[1]
    code, out, _ = run(capsys, "--table-answers", "200ms", "--failover", "30s", "--json")
    assert code == 0
    assert json.loads(out)["most_renewable"] == 997


def test_leases_of_nobody_are_told(capsys):
    code, out, _ = run(capsys, "--kill", "3@2m")
    assert code == 0
    assert "leases by group:     groupA 0, nobody 6" in out
    assert "time to balance:     not reached" in out


def test_json_is_one_object_in_one_line(capsys):
    code, out, _ = run(capsys, "--json", "--join", "2:blue@1m")
    found = json.loads(out)
    assert code == 0
    assert out.count("\n") == 1
    assert found.keys() >= ASKED
    assert found["leases_by_worker"].keys() == {"least", "most"}
    assert sum(found["leases_by_group"].values()) == 6
    assert found["requests_per_hour"] == pytest.approx(
        found["reads_per_hour"] + found["writes_per_hour"], abs=1
    )
    assert [moment["event"] for moment in found["timeline"]].count("2 workers start") == 1


def test_same_seed_same_answer(capsys):
    answers = [run(capsys, "--json", "--throughput", "zipf", "--seed", seed)[1] for seed in "771"]
    assert answers[0] == answers[1] != answers[2]


def test_prices_are_the_users(capsys):
    def price(*options):
        return json.loads(run(capsys, "--json", *options)[1])["price_per_hour"]

    assert price("--price-read", "0", "--price-write", "0") == 0
    assert price("--price-read", "0", "--price-write", "2") == pytest.approx(
        2 * price("--price-read", "0", "--price-write", "1"), rel=0.001
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--kill", "9@2m"], "--kill: 9 at 120 s, but then only 3 workers run"),
        (["--kill", "soon"], "--kill: 'soon' is not COUNT@TIME or COUNT:GROUP@TIME"),
        (["--join", "1@2d"], "--join: '2d' is not a length of time, such as 10s, 5m or 1h"),
        (["--join", "1@5m"], "the simulation ends at 240 s; see --duration"),
        (["--failover", "x"], "Invalid value for '--failover': 'x' is not a length of time"),
        (["--failover", "1h"], "Invalid value for '--failover': 1h is not from 1s to 600s"),
        (["--table-answers", "2s"], "Invalid value for '--table-answers': 2s is not from 0.001s"),
        (["--workers", "0"], "Invalid value for '--workers'"),
        (["--groups", "27"], "Invalid value for '--groups'"),
        (["--profile", "java1"], "Invalid value for '--profile'"),
        (["--throughput", "odd"], "Invalid value for '--throughput'"),
        (["--records-per-second", "0"], "Invalid value for '--records-per-second'"),
        (["--records-per-second", "nan"], "'--records-per-second': nan is not a finite number"),
        (["--records-per-second", "1e999"], "'--records-per-second': 1e999 is not a finite number"),
        (["--price-read", "inf"], "'--price-read': inf is not a finite number"),
        (["--price-write", "nan"], "'--price-write': nan is not a finite number"),
        (["--join", "1998@1m"], "--join: 2001 workers at 60 s; at most 1000 are simulated"),
        (["--join", f"{'9' * 5000}@1m"], "more] workers at 60 s; at most 1000 are simulated"),
        (["--kill", f"1@{'9' * 400}m"], "more] is too long a time"),
        (["--duration", "9" * 400], "more] is too long a time"),
        (["--record-bytes", "9" * 400], "more] is not from 1 to 10485760"),
        (["--price-read", "1e308"], "'--price-read': 1e+308 is not in the range"),
        (["--nothing"], "No such option"),
        (["--plot", "x.svg"], "--plot: x.svg: only .png files are written"),
        (["--plot", "no/such/x.png"], "--plot: no/such/x.png: the folder does not exist"),
    ],
)
def test_bad_options_end_with_2_and_say_why(capsys, arguments, why):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert why in err


def test_a_picture_is_drawn(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "fleet.png"
    code, _, err = run(capsys, "--groups", "2", "--plot", str(path))
    assert (code, err) == (0, "")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("counts", "most"),
    [([500] + [5] * 99, 5), ([500] * 2 + [5] * 98, 500), ([0, 0], 1), ([7], 7)],
)
def test_the_scale_of_a_picture_is_not_that_of_a_moment(counts, most):
    samples = [Sample(at_s, {"a-1": count}, 0) for at_s, count in enumerate(counts)]
    assert lasting_most(samples) == most


def test_without_matplotlib_a_picture_is_an_error_that_names_the_extra(capsys, monkeypatch):
    monkeypatch.setattr("kcl_mld.cli.simulate.find_spec", lambda name: None)
    code, out, err = run(capsys, "--plot", "x.png")
    assert (code, out) == (2, "")
    assert "needs the package matplotlib: pip install 'kcl-mld[plot]'" in err


def test_a_length_of_time_may_be_a_number_already():
    assert Seconds(1, 2).convert(1.5, None, None) == 1.5


def test_a_terminal_shows_progress(capsys, monkeypatch):
    quiet = run(capsys)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    code, out, err = run(capsys)
    assert (code, out) == (0, quiet[1])
    assert "Simulating" in err
