"""``python -m tests.generated_docs``: write the generated sections of docs/ anew."""

import inspect
import pathlib

from mld.decide import client_version, leader_lock, lifecycle
from mld.model import spark_keys as keys
from mld.model.config_keys import KEYS
from mld.spark import errors
from protocol import state

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
            lines.append(f"| `{key.name}` | {default} | {key.doc} |")
    return "\n".join(lines)


def spark_keys():
    """The table of the ``spark.*`` properties."""
    lines = ["| key | default | value | effect |", "|---|---|---|---|"]
    for key in keys.KEYS:
        value = ", ".join(f"`{word}`" for word in key.choices) or key.kind.value
        default = "" if key.default is None else f"`{key.default}`"
        lines.append(f"| `{key.name}` | {default} | {value} | {key.doc} |")
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


def sections():
    """All generated sections: (page, name) -> body."""
    return {
        ("docs/architecture.md", "lifecycle"): diagram(lifecycle.mermaid()),
        ("docs/architecture.md", "client-version"): diagram(client_version.mermaid()),
        ("docs/architecture.md", "leader-lock"): diagram(leader_lock.mermaid()),
        ("docs/architecture.md", "protocol"): state.markdown(state.Role.DAEMON),
        ("docs/differences.md", "own-keys"): own_keys(),
        ("docs/spark/guide.md", "spark-exits"): spark_exits(),
        ("docs/spark/keys.md", "spark-keys"): spark_keys(),
    }


def main():
    """Write them."""
    for (page, name), body in sections().items():
        path = ROOT / page
        path.write_text(with_section(path.read_text("utf-8"), name, body), "utf-8")


if __name__ == "__main__":
    main()
