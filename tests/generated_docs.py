"""``python -m tests.generated_docs``: write the generated sections of docs/ anew."""

import inspect
import pathlib
import re
import shlex

from click.testing import CliRunner

from kcl_mld.children.rules import lifecycle
from kcl_mld.cli.simulate import simulate
from kcl_mld.config.config import KEYS
from kcl_mld.config.spark import keys
from kcl_mld.fleet.rules import client_version, leader_lock, table_migration
from kcl_mld.leases.rules import lease_life
from kcl_mld.observe.model.verdict import Verdict
from kcl_mld.simulate.profile import ProfileName, make_profile
from kcl_mld.simulate.scenario import Scenario
from kcl_mld.spark import errors
from kcl_mld_protocol import state
from tests import generated_metrics

ROOT = pathlib.Path(__file__).resolve().parents[1]


def section(text, name):
    """What stands between the markers of a section; None where the text has no such section."""
    _, opening, rest = text.partition(f"<!-- {name} -->\n")
    body, closing, _ = rest.partition(f"<!-- /{name} -->")
    return body.strip() if opening and closing else None


def with_section(text, name, body):
    """A page's text with one section replaced."""
    before, opening, rest = text.partition(f"<!-- {name} -->")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    return f"{before}{opening}\n{body}\n{closing}{after}"


def diagram(text):
    """A Mermaid diagram as Markdown shows it."""
    return f"```mermaid\n{text.strip()}\n```"


def own_keys():
    """The table of the properties that the Java daemon does not know."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key in KEYS.values():
        if key.own:
            default = "" if key.default is None else f"`{key.default}`"
            lines.append(f"| `{key.name}` | {default} | {key.meaning} |")
    return "\n".join(lines)


def spark_keys():
    """The table of the ``spark.*`` properties."""
    lines = ["| key | default | value | effect |", "|---|---|---|---|"]
    for key in keys.KEYS:
        value = ", ".join(f"`{word}`" for word in key.choices) or key.kind.value
        default = "" if key.default is None else f"`{key.default}`"
        lines.append(f"| `{key.name}` | {default} | {value} | {key.meaning} |")
    return "\n".join(lines)


def spark_exits():
    """The table of the exit codes of a Spark child."""
    lines = ["| exit code | error | meaning |", "|---|---|---|"]
    found = [
        error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, errors.SparkChildError) and error is not errors.SparkChildError
    ]
    for error in sorted(found, key=lambda one: (one.exit_code, inspect.getsourcelines(one)[1])):
        meaning = " ".join(inspect.getdoc(error).partition("\n\n")[0].split())
        lines.append(f"| {error.exit_code} | `{error.__name__}` | {meaning} |")
    return "\n".join(lines)


#: What the examples of the page on `kcl-mld simulate` run.
SIMULATIONS = {
    "java2": "--profile java2 --workers 10 --shards 50 --join 10:groupB@5m --duration 15m --seed 3",
    "java3": "--profile java3 --workers 4 --shards 16 --kill leader@8m --duration 15m",
    "ours": "--workers 10 --shards 50 --join 10:groupB@5m --kill leader@10m --duration 15m",
}


def simulation(name):
    """An example: its command, and what that prints."""
    result = CliRunner().invoke(simulate, shlex.split(SIMULATIONS[name]), standalone_mode=False)
    return f"```console\n$ kcl-mld simulate {SIMULATIONS[name]}\n{result.stdout.rstrip()}\n```"


def simulate_options():
    """The table of the options of `kcl-mld simulate`."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in simulate.params:
        is_shown = isinstance(option.default, str | int | float) and not option.is_flag
        shown = f"`{option.default}`" if is_shown else ""
        words = "" if not hasattr(option.type, "choices") else ", ".join(option.type.choices)
        meaning = " ".join(part for part in (option.help, words and f"One of {words}.") if part)
        lines.append(f"| `{option.opts[0]}` | {shown} | {meaning} |")
    return "\n".join(lines)


def simulate_profiles():
    """The table of what the profiles of `kcl-mld simulate` assume, at default settings."""
    scenario = Scenario(workers=1, groups=("groupA",), shards=1)
    profiles = [make_profile(name, scenario) for name in ProfileName]
    names = [profile.name for profile in profiles]
    lines = [f"| seconds, at default settings | {' | '.join(names)} |"]
    lines.append("|---" * (len(profiles) + 1) + "|")
    for meaning, value in PROFILE_ROWS.items():
        cells = " | ".join(value(profile) for profile in profiles)
        lines.append(f"| {meaning} | {cells} |")
    return "\n".join(lines)


def only_assigned(value):
    """A cell that fleets without a leader who assigns don't have."""
    return lambda profile: value(profile) if profile.is_assigned else ""


PROFILE_ROWS = {
    "pause between two looks of a taker, or of the leader, at most": lambda one: f"{one.look_s:g}",
    "pause between two looks for assigned leases, at most": only_assigned(
        lambda one: f"{one.discovery_s:g}"
    ),
    "period of renewals": lambda one: (
        "{:g} to {:g}".format(*one.calm_periods_s) if one.is_calm else f"{one.brisk_s:g}"
    ),
    "leader lock: lease, heartbeat": only_assigned(
        lambda one: f"{one.lock.duration_s:g}, {one.lock.heartbeat_s:g}"
    ),
    "process start to the first look": lambda one: f"{one.starting_s:g}",
    "lease held to the first record": lambda one: f"{one.opening_s:g}",
    "refused write to the end of the child": lambda one: f"{one.notice_s:g}",
    "notice of a hand-off to its completion": only_assigned(lambda one: f"{one.hand_over_s:g}"),
}


#: All generated sections: (page, name) -> what writes its body.
SECTIONS = {
    ("docs/architecture.md", "lifecycle"): lambda: diagram(lifecycle.mermaid()),
    ("docs/architecture.md", "client-version"): lambda: diagram(client_version.mermaid()),
    ("docs/architecture.md", "table-migration"): lambda: diagram(table_migration.mermaid()),
    ("docs/architecture.md", "lease-life"): lambda: diagram(lease_life.mermaid()),
    ("docs/architecture.md", "leader-lock"): lambda: diagram(leader_lock.mermaid()),
    ("docs/architecture.md", "protocol"): lambda: state.markdown(state.Role.DAEMON),
    ("docs/differences.md", "own-keys"): own_keys,
    ("docs/metrics.md", "metrics"): generated_metrics.family_table,
    ("docs/metrics.md", "cloudwatch-metrics"): generated_metrics.cloudwatch_table,
    ("docs/simulate.md", "simulate-java2"): lambda: simulation("java2"),
    ("docs/simulate.md", "simulate-java3"): lambda: simulation("java3"),
    ("docs/simulate.md", "simulate-ours"): lambda: simulation("ours"),
    ("docs/simulate.md", "simulate-options"): simulate_options,
    ("docs/simulate.md", "simulate-profiles"): simulate_profiles,
    ("docs/spark/reference.md", "spark-exits"): spark_exits,
    ("docs/spark/keys.md", "spark-keys"): spark_keys,
}


def verdicts():
    """The parts of docs/verdicts.md that ``kcl-mld explain --verdict`` prints from the wheel."""
    text = (ROOT / "docs/verdicts.md").read_text("utf-8")
    begin = text.index(f"## {next(iter(Verdict))}")
    parts = text[begin : text.index("## A shard that is not read")]
    parts = re.sub(r"<!--.*?-->\n", "", parts, flags=re.DOTALL)

    # Where the target is a page of its own, it is named for those who have only the text.
    def named(link):
        page = "verdicts.md" if link[2].startswith("#") else ""
        return f"{link[1]} (docs/{page}{link[2]})"

    return re.sub(r"\[([^]]+)\]\s*\(([^)]+)\)", named, parts)


def main():
    """Write them."""
    (ROOT / "mld/cli/verdicts.md").write_text(verdicts(), "utf-8")
    for (page, name), body in SECTIONS.items():
        path = ROOT / page
        path.write_text(with_section(path.read_text("utf-8"), name, body()), "utf-8")
    (ROOT / "properties/grafana-dashboard.json").write_text(generated_metrics.dashboard(), "utf-8")
    alerts = ROOT / "packaging/kubernetes/components/prometheus/alerts.yaml"
    alerts.write_text(generated_metrics.kubernetes_alerts(), "utf-8")


if __name__ == "__main__":
    main()
