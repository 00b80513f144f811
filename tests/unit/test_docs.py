"""What README and docs/ show is what the code says, and is fit to read."""

import dataclasses
import importlib
import importlib.util
import inspect
import re
import shlex

import click
import pytest
import yaml

import kcl_mld.errors
from kcl_mld import spark
from kcl_mld.children.model.consumer_status import ConsumerStatus
from kcl_mld.cli import COMMANDS, cli
from kcl_mld.cli.options import run_command
from kcl_mld.config.settings import resolve
from kcl_mld.config.spark import keys
from kcl_mld.config.stream_options import parse_option
from kcl_mld.local.kinesis.model import OPERATIONS
from kcl_mld.signals.model.conditions import Reason
from kcl_mld.spark import errors
from kcl_mld.spark.batch_context import BatchContext
from tests import rooms
from tests.generated_docs import SECTIONS, section
from tests.markdown_pages import PAGES, ROOT, page, without_targets
from tests.page_commands import GATES, SCRIPTS, blocks_of

README = (ROOT / "README.md").read_text("utf-8")
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text("utf-8")
DIFFERENCES = (ROOT / "docs/differences.md").read_text("utf-8")
LINES_OF_README = 150
#: Code of the way of a lease and of a record that the page of the architecture names.
LINES_OF_AN_HOUR = 1500
LINES_OF_A_ROOM = 10
WIDTH = 100
LINES_OF_A_PARAGRAPH = 6


# -- generated and checked sections ---------------------------------------------------------------


@pytest.mark.parametrize(("page", "name"), SECTIONS)
def test_a_generated_section_is_what_the_code_says(page, name):
    assert section((ROOT / page).read_text("utf-8"), name) == SECTIONS[page, name]()


def test_every_key_of_the_spark_pipeline_is_a_row_of_its_table():
    table = section((ROOT / "docs/spark/keys.md").read_text("utf-8"), "spark-keys")
    rows = re.findall(r"^\| `(spark\.[a-zA-Z.]+)` \|", table, re.MULTILINE)
    assert rows == [key.name for key in keys.KEYS]


def test_every_error_of_a_spark_child_is_a_row_with_its_exit_code():
    table = section((ROOT / "docs/spark/reference.md").read_text("utf-8"), "spark-exits")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", table, re.MULTILINE)
    codes = {name: int(code) for code, name in rows}
    assert codes["SparkConfigError"] == errors.SparkConfigError.exit_code
    assert all(getattr(errors, name).exit_code == code for name, code in codes.items())


def test_every_exit_code_of_the_daemon_is_a_row():
    found = inspect.getmembers(kcl_mld.errors, inspect.isclass)
    codes = {str(one.exit_code) for _, one in found if issubclass(one, kcl_mld.errors.MldError)}
    text = (ROOT / "docs/supervising.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\d, ]+) \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    assert codes
    assert codes <= set(rows)


def test_every_reason_of_readyz_and_every_field_of_leases_is_a_row():
    named = set(page("docs/probes.md").inline_code)
    assert {reason.value for reason in Reason} <= named
    assert {field.name for field in dataclasses.fields(ConsumerStatus)} <= named


def test_every_operation_of_the_embedded_kinesis_is_listed():
    text = (ROOT / "docs/local.md").read_text("utf-8")
    rows = re.findall(r"^\| [a-z -]+ \| ([A-Za-z, ]+) \|$", text, re.MULTILINE)
    listed = [name for row in rows for name in row.split(", ")]
    assert sorted(listed) == sorted(OPERATIONS)


def test_every_sink_of_the_key_table_has_a_part_of_its_own():
    sinks = next(key for key in keys.KEYS if key.name == "spark.sink").choices
    assert set(sinks) <= set(page("docs/spark/sinks.md").headings)


def test_what_the_pages_import_can_be_imported():
    found = set()
    for name in PAGES:
        for fence in page(name).fences:
            for line in re.findall(r"from kcl_mld\.spark import ([\w, ]+)", fence.text):
                found |= {word.strip() for word in line.split(",")}
    assert found
    assert found <= set(spark.__all__)


def test_the_guide_names_everything_that_a_function_is_told():
    told = {field.name for field in dataclasses.fields(BatchContext)}
    assert told <= set(page("docs/spark/reference.md").inline_code)


def test_every_difference_that_the_conformance_kit_names_is_a_row_of_the_table():
    table = section(DIFFERENCES, "differences")
    rows = set(re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE))
    named = set()
    for path in sorted((ROOT / "protocol" / "conform").glob("*.py")):
        text = path.read_text("utf-8")
        named |= set(re.findall(r'differs\(\s*[^,]+,\s*"([a-z0-9-]+)"', text))
        named |= set(re.findall(r'row="([a-z0-9-]+)"', text))
    assert named
    assert named <= rows


def test_every_difference_has_an_id_of_its_own():
    table = section(DIFFERENCES, "differences")
    ids = re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE)
    assert ids
    assert len(ids) == len(set(ids))


def rooms_section():
    return ARCHITECTURE.partition("\n## Rooms\n")[2].partition("\n## ")[0]


def test_the_order_of_rooms_on_the_page_is_that_of_the_imports():
    line = re.search(r"^```\n(errors < .*)\n```$", rooms_section(), re.MULTILINE)
    assert tuple(line[1].split(" < ")) == rooms.ORDER


def test_the_table_of_rooms_has_each_room_in_that_order():
    cells = re.findall(r"^\| (`[^|]+) \|", rooms_section(), re.MULTILINE)
    assert tuple(re.findall(r"`(\w+)`", " ".join(cells))) == rooms.ORDER


@pytest.mark.parametrize("room", [room for room in rooms.ORDER if room not in {"errors", "app"}])
def test_the_docstring_of_a_room_is_short_and_names_decisions_that_exist(room):
    lines = inspect.getdoc(importlib.import_module(f"kcl_mld.{room}")).splitlines()
    assert len(lines) <= LINES_OF_A_ROOM
    decisions = [line.removeprefix("* ").split(": ", 1) for line in lines if line.startswith("* ")]
    assert decisions
    for name, heading in decisions:
        assert heading.replace("``", "`") in page(f"docs/decisions/{name}").headings


def test_what_a_newcomer_is_to_read_is_read_in_an_hour():
    hour = ARCHITECTURE.partition("\n## An hour to read it\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", hour, re.MULTILINE)
    files = [name for _, cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    lines = sum(len((ROOT / name).read_text("utf-8").splitlines()) for name in files)
    assert files
    assert lines <= LINES_OF_AN_HOUR
    assert sum(int(minutes) for minutes, _ in rows) <= 60


# -- fit to read ----------------------------------------------------------------------------------


def test_readme_is_short():
    assert len(README.splitlines()) <= LINES_OF_README


#: Pages, and what is written for those who change the project.
TO_READ = (
    *PAGES,
    "protocol/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "tests/spark/README.md",
)
SAMPLES = [f"properties/{one.name}" for one in (ROOT / "properties").glob("*.properties")]
#: Pages that name files, targets and keys.
NAMING = (*PAGES, "CONTRIBUTING.md")


@pytest.mark.parametrize("name", TO_READ)
def test_prose_is_wrapped(name):
    long = [n for n, line in page(name).prose if len(without_targets(line)) > WIDTH]
    assert not long, f"{name}: lines longer than {WIDTH} characters"


@pytest.mark.parametrize("name", TO_READ)
def test_paragraphs_are_short(name):
    long = [n for n, lines in page(name).paragraphs if len(lines) > LINES_OF_A_PARAGRAPH]
    assert not long, f"{name}: paragraphs of more than {LINES_OF_A_PARAGRAPH} lines begin there"


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("docs/")])
def test_every_page_can_be_reached_from_the_list_of_pages(name):
    listed = {(ROOT / "docs" / link).resolve() for link in page("docs/README.md").links}
    assert name == "docs/README.md" or (ROOT / name).resolve() in listed
    assert "docs/README.md" in page("README.md").links


def in_navigation(entries):
    """The pages of the website's navigation, in order."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for part in entry.values():
                yield from in_navigation([part] if isinstance(part, str) else part)


def test_every_page_is_in_the_navigation_of_the_website_once():
    nav = list(in_navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    missing = {name for name in PAGES if name.startswith("docs/")} - {f"docs/{one}" for one in nav}
    assert not missing, f"add {sorted(missing)} to nav in mkdocs.yml, without docs/"
    assert len(nav) == len(set(nav)), f"twice in nav of mkdocs.yml: {nav}"


LINES_OF_A_START = 60


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("docs/start/")])
def test_a_start_page_is_short(name):
    shown = re.sub(r"^<!--.*?-->\n", "", page(name).text, flags=re.DOTALL | re.MULTILINE)
    assert len([line for line in shown.splitlines() if line]) <= LINES_OF_A_START


# -- true -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PAGES, *SAMPLES])
def test_no_sample_registers_a_billed_consumer_unasked(name):
    """A file without a word on it means enhanced fan-out."""
    shown = (
        [fence.text for fence in page(name).fences]
        if name in PAGES
        else [(ROOT / name).read_text()]
    )
    files = [text for text in shown if re.search(r"(?m)^AwsCredentialsProvider\s*=", text)]
    assert all(re.search(r"(?m)^retrievalMode\s*=", text) for text in files), files


@pytest.mark.parametrize("name", [*NAMING, "protocol/README.md", "properties/KEYS.md"])
def test_every_relative_link_and_anchor_leads_somewhere(name):
    for link in page(name).links:
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), f"{name}: {link}"
        if anchor:
            other = str(target.resolve().relative_to(ROOT))
            assert anchor in page(other).anchors, f"{name}: {link}"


@pytest.mark.parametrize("name", NAMING)
def test_every_file_that_is_named_exists(name):
    for text in page(name).inline_code:
        if re.fullmatch(r"(?!/|\.\.|\.demo)[\w.-]+(?:/[\w.-]+)+\.(?:py|md|properties|png)", text):
            assert (ROOT / text).exists(), f"{name}: {text}"


def shown_commands(name):
    """Every ``kcl-mld …`` of a page, as lists of arguments."""
    shown = page(name)
    lines = [line for fence in shown.fences for line in fence.text.splitlines()]
    for text in [*lines, *shown.inline_code]:
        if match := re.search(r"(?<![\w/.-])kcl-mld(?![\w/*_.:@-])([^#|;&)]*)", text):
            yield shlex.split(match.group(1).replace("…", ""))


def check_command(arguments):
    """Raise AssertionError unless a command has this name and these options."""
    command = run_command
    if arguments and (arguments[0] in COMMANDS or arguments[0].startswith("--h")):
        command = cli
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        child = command.get_command(click.Context(command), arguments[0])
        assert child is not None, f"no command {arguments[0]}"
        command, arguments = child, arguments[1:]
    if "--" in arguments:
        arguments, rest = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
        if command.name == "local":  # they are the daemon's
            check_command(["run", *rest])
    options = {text for option in command.params for text in option.opts} | {"--help", "-h"}
    for argument in arguments:
        if argument.startswith("-"):
            assert argument.partition("=")[0] in options, f"no option {argument}"
    if command is run_command and arguments and not arguments[0].startswith("-"):
        assert re.fullmatch(r"F|\S+\.properties", arguments[0]), f"no command {arguments[0]}"


@pytest.mark.parametrize("name", [*NAMING, "protocol/README.md"])
def test_every_command_that_is_shown_exists(name):
    for arguments in shown_commands(name):
        check_command(arguments)


def test_the_check_of_commands_sees_commands_and_what_is_wrong_with_them():
    assert ["validate", "app.properties"] in list(shown_commands("README.md"))
    for wrong in (
        "validat x",
        "validate --al x",
        "leases show x",
        "local -- --htp x",
        "--propertie F",
    ):
        with pytest.raises(AssertionError):
            check_command(shlex.split(wrong))


@pytest.mark.parametrize("name", NAMING)
def test_every_make_target_and_module_that_is_shown_exists(name):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    shown = page(name)
    for text in [*shown.inline_code, *(fence.text for fence in shown.fences)]:
        for target in re.findall(r"\bmake ([a-z][a-z-]*)\b(?! if)", text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{name}: make {target}"
        for module in re.findall(r"python3? -m ([\w.]+)", text):
            assert importlib.util.find_spec(module), f"{name}: python -m {module}"


@pytest.mark.parametrize("name", [*PAGES, "protocol/README.md"])
def test_every_block_of_commands_is_run_or_says_why_not(name):
    """``tests/process/test_pages.py`` runs what this finds."""
    blocks_of(name)
    command = re.compile(r"^(?:\$ |kcl-mld|pip3? |python3? |make |aws |npm )", re.MULTILINE)
    for fence in page(name).fences:
        is_typed = fence.language in {"sh", "console"} or any(
            "test: file" in n for n in fence.notes
        )
        assert is_typed or not command.search(fence.text), f"{name}: {fence.text}"


def test_every_hidden_script_belongs_to_a_page():
    text = "".join(page(name).text for name in PAGES)
    named = {SCRIPTS / one for one in re.findall(r"<!-- test: script: (\S+) -->", text)}
    assert named == set(SCRIPTS.rglob("*.sh"))


def test_every_target_with_a_help_is_part_of_a_landing_or_says_why_not():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    landed = {*GATES, "check"}  # the last one is the first part of `make test`
    for before, target in re.findall(r"(.*)\n([\w-]+):.*?  ## ", makefile):
        says = re.fullmatch(r"# not run: .+", before) is not None
        assert says is (target not in landed), target


def is_key(word):
    """Whether a properties file may have this key."""
    if word.startswith(keys.PREFIX):
        known = {key.name for key in keys.KEYS}
        return word in known or word.startswith(keys.FREE_PREFIXES)
    return resolve(word)[0] is not None or parse_option(word, "x")[0] is not None


#: Words in the style of a key that are none: of the protocol, of Java and its tables, of Python.
NOT_KEYS = (
    {"initialize", "processRecords", "leaseLost", "shardEnded", "shutdownRequested"}
    | {"partitionKey", "explicitHashKey", "checkpointOwner", "kclMldIntent"}
    | {
        "dictConfig",
        "entityType",
        "groupBy",
        "kclMldAssigned",
        "kclMldCalled",
        "kclMldHonorsPause",
        "kclMldInstance",
        "kclMldMeasuredPlace",
        "kclMldMostRenewable",
        "kclMldMoving",
        "kclMldWorstLag",
        "leaseCounter",
        "maxAge",
    }
    | {"kclMldFailure", "kclMldSkip", "kclMldStream", "millisBehindLatest"}
    | {"deadLetteredAtMillis", "exitCode", "failedSequenceNumber", "failedSubSequenceNumber"}
    | {"firstArrivalMillis", "firstFailedAtMillis", "firstSequenceNumber", "firstSubSequenceNumber"}
    | {"lastArrivalMillis", "lastSequenceNumber", "lastSubSequenceNumber", "recordCount"}
    | {"stderrTail", "streamCreatedAt", "workerId"}
    | {"kclMldNewcomer", "kclMldReadUntil", "kclMldLoss", "untilMillis"}
    | {"kclMldHolder", "kclMldPausedUntil", "kclMldRequest", "kclMldSteered"}
    | {"leaseKey", "shardId", "parentShardId", "childShardIds", "streamIdentifier"}
    | {"schemaVersionId", "schemaName", "dataFormat", "foreachBatch"}
    | {"addColumns"}  # a value
    | {"kclMld.upkeep"}  # of a table
    # of Kubernetes, KEDA and ECS
    | {"healthCheck", "maximumPercent", "minimumHealthyPercent", "readonlyRootFilesystem"}
    | {"stopTimeout", "taskRoleArn"}
    | {"maxReplicaCount", "maxSurge", "maxUnavailable", "minReadySeconds", "preStop"}
    | {"serverAddress", "terminationGracePeriodSeconds"}
)


@pytest.mark.parametrize("name", NAMING)
def test_every_key_that_is_named_is_one(name):
    shown = page(name)
    wrong = set()
    for text in shown.inline_code:
        word = re.split(r"\s*=", text, maxsplit=1)[0]
        if re.fullmatch(
            r"(?:spark\.[\w.]+|(?:[a-z]+|Aws)(?:[A-Z][a-z]*)+(?:\.\w+)*)", word
        ) and not (is_key(word) or word in NOT_KEYS):
            wrong.add(word)
    for fence in shown.fences:
        if fence.language in {"properties", "sh"}:
            wrong |= {
                key
                for key in re.findall(r"^([\w.]+) += ", fence.text, re.MULTILINE)
                if not is_key(key)
            }
    assert not wrong
