"""The section of ``childFailurePolicy = deadletter``, and its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kcl_mld.config.child_command import spark_command, split_command
from kcl_mld.config.contain_config import DESTINATION, ContainConfig
from kcl_mld.config.findings import nearest
from kcl_mld.config.keys import keys_of
from kcl_mld.kernel.model.masking import mask

if TYPE_CHECKING:
    from kcl_mld.config.config import ChildConfig
    from kcl_mld.config.settings import Settings

_POLICY = "childFailurePolicy"
#: Scheme -> what follows it.
_FORMS = {"file": "file:FOLDER", "s3": "s3://BUCKET/PREFIX", "sqs": "sqs:URL of the queue"}


def contain_of(settings: Settings, child: ChildConfig) -> ContainConfig | None:
    """The section; None with another policy, which reports properties that then mean nothing."""
    if settings.value(_POLICY) != "deadletter":
        for key in keys_of(ContainConfig):
            if settings[key.name].is_set:
                advice = f"write {_POLICY} = deadletter, or remove the line"
                settings.warn(key.name, f"has no effect without {_POLICY} = deadletter", advice)
        return None
    programs = [child.argv] + [
        split_command(one.text) for one in settings.stream_options if one.option == "executableName"
    ]
    if any(spark_command(argv) is not None for argv in programs):
        settings.error(
            _POLICY,
            "deadletter is not for kcl-mld-spark: one host serves all shards of the worker",
            "write childFailurePolicy = restart, and spark.function.onError for its records",
        )
    section = settings.read(ContainConfig, destination=_destination(settings))
    if section.with_records and section.destination.startswith("sqs:"):
        settings.error(
            "deadLetterRecords",
            "messages of SQS have no records: a message is too small for many",
            "remove the line; the numbers of the records tell where they are in the stream",
        )
    return section


def _destination(settings: Settings) -> str:
    text = (settings.text(DESTINATION) or "").strip()
    every = ", ".join(_FORMS.values())
    if not text:
        where = DESTINATION if settings[DESTINATION].is_set else _POLICY
        problem = f"deadletter needs {DESTINATION}: nothing is skipped that is not kept"
        settings.error(where, problem, f"write {DESTINATION} = one of {every}")
        return ""
    scheme, _, rest = text.partition(":")
    url = urlsplit(rest if scheme == "sqs" else text)
    is_whole = {
        "file": bool(rest.strip("/")) and (not rest.startswith("//") or rest.startswith("///")),
        "s3": rest.startswith("//") and bool(url.netloc),
        "sqs": url.scheme in {"http", "https"} and bool(url.netloc) and url.path.count("/") > 1,
    }
    if scheme not in _FORMS:
        close = nearest(scheme, _FORMS)
        advice = f"did you mean {_FORMS[close]}?" if close else f"write one of {every}"
        settings.error(DESTINATION, f"{mask(text)!r} names no destination", advice)
    elif not is_whole[scheme]:
        problem = f"{mask(text)!r} is not of the form {_FORMS[scheme]}"
        settings.error(DESTINATION, problem, f"write {_FORMS[scheme]}")
    return text
