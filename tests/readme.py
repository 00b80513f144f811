"""``python -m tests.readme``: write the generated sections of README anew."""

import inspect
import pathlib

from mld.decide import lifecycle
from mld.spark import errors, keys
from protocol import state

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def with_section(text, name, body):
    """README's text with one section replaced."""
    before, opening, rest = text.partition(f"<!-- {name} -->")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    return f"{before}{opening}\n{body}\n{closing}{after}"


def diagram(text):
    """A Mermaid diagram as Markdown shows it."""
    return f"```mermaid\n{text.strip()}\n```"


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
    """All generated sections: name -> body."""
    return {
        "lifecycle": diagram(lifecycle.mermaid()),
        "protocol": diagram(state.mermaid(state.Role.DAEMON)),
        "spark-keys": spark_keys(),
        "spark-exits": spark_exits(),
    }


def main():
    """Write them."""
    text = README.read_text("utf-8")
    for name, body in sections().items():
        text = with_section(text, name, body)
    README.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
