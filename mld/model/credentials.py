"""The value grammar of ``AwsCredentialsProvider``, parsed without looking anything up.

``value := entry ("," entry)*``, ``entry := name ("|" param)*``. An entry is trimmed, a parameter
is not, and a blank before the first bar makes the name unresolvable. In Java an entry that cannot
be built vanishes silently; here it leaves a warning.

Source: AwsCredentialsProviderPropertyValueDecoder, KclStsAssumeRoleCredentialsProvider and
NestedPropertyKey of the MultiLangDaemon 3.5.1.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field

from mld.model.credential_names import ADVICE, SDK1_NAMES, SDK_NAMES, CredentialSource
from mld.model.findings import Problem, Severity
from mld.model.masking import mask

__all__ = [
    "REGION",
    "AssumedRole",
    "CredentialChain",
    "CredentialSource",
    "CredentialStep",
    "parse_chain",
    "supported_names",
]


@dataclass(frozen=True, slots=True)
class AssumedRole:
    """What AssumeRole is asked for; the base credentials are the default chain's.

    Attributes:
        arn: role ARN as written.
        session_name: RoleSessionName as written.
        external_id: ExternalId, or None; never shown.
        region: STS region from ``endpointRegion`` or ``endpoint``; None = the default region.
        endpoint: STS URL, or None.
    """

    arn: str
    session_name: str
    external_id: str | None = field(default=None, repr=False)
    region: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class CredentialStep:
    """One provider of a chain.

    Attributes:
        source: its kind.
        profile: profile name, only with PROFILE; None = ``AWS_PROFILE`` or ``default``.
        role: only and always with ASSUME_ROLE.
    """

    source: CredentialSource
    profile: str | None = None
    role: AssumedRole | None = None

    def __str__(self) -> str:
        if self.role is None:
            return self.source if self.profile is None else f"{self.source}|{mask(self.profile)}"
        parts = [str(self.source), self.role.arn, mask(self.role.session_name)]
        if self.role.endpoint:
            parts.append(f"endpoint={mask(self.role.endpoint)}^{self.role.region}")
        elif self.role.region:
            parts.append(f"endpointRegion={self.role.region}")
        if self.role.external_id:
            parts.append("externalId=****")
        return "|".join(parts)


@dataclass(frozen=True, slots=True)
class CredentialChain:
    """Providers in order: the first that has credentials is used and kept."""

    steps: tuple[CredentialStep, ...]

    def __str__(self) -> str:
        return ", ".join(str(step) for step in self.steps)


#: ``us-east-1``, ``us-gov-west-1``, ``cn-north-1``, ``eusc-de-east-1``, ``us-iso-east-1``, …
REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d+\Z")


def supported_names() -> tuple[str, ...]:
    """All provider names, as they are written in a file."""
    return tuple(str(source) for source in CredentialSource)


def parse_chain(value: str) -> tuple[CredentialChain, tuple[Problem, ...]]:
    """Read one value; entries that Java skips are skipped, each with a warning.

    Returns: the chain, empty when nothing could be built (Java refuses to start then, and so
        should the caller), and what there is to say, in the order of the text.
    """
    problems: list[Problem] = []
    steps = [
        step
        for entry in value.split(",")
        if entry.strip()
        for step in _parse_entry(entry.strip(), problems)
    ]
    # A list for fleets of both SDKs names one provider twice.
    return CredentialChain(tuple(dict.fromkeys(steps))), tuple(problems)


def _parse_entry(entry: str, problems: list[Problem]) -> tuple[CredentialStep, ...]:
    # As Java's split: empty parameters at the end do not count.
    name, *params = entry.rstrip("|").split("|") if entry.strip("|") else [""]
    sources = SDK1_NAMES.get(name)
    if name in SDK_NAMES:
        sources = (SDK_NAMES[name],)
    elif sources is None:
        problems.append(_unknown(name))
        return ()
    elif sources == (CredentialSource.PROFILE,) and len(params) > 1:
        problems.append(_own_profile_file(name))
        return ()
    else:
        problems.append(_of_sdk1(name, sources))
    steps = (_step(source, params, problems) for source in sources)
    return tuple(step for step in steps if step is not None)


def _step(
    source: CredentialSource, params: list[str], problems: list[Problem]
) -> CredentialStep | None:
    if source is CredentialSource.ASSUME_ROLE:
        return _assume_role(params, problems)
    if source is CredentialSource.PROFILE and len(params) == 1:
        return CredentialStep(source, profile=params[0])
    if params:
        effect = "the default profile is used" if source is CredentialSource.PROFILE else "ignored"
        what = "more than one parameter" if source is CredentialSource.PROFILE else "a parameter"
        problems.append(_warning(f"{source} with {what}: {effect}, as in Java"))
    return CredentialStep(source)


def _of_sdk1(name: str, sources: tuple[CredentialSource, ...]) -> Problem:
    used = ", ".join(sources)
    return _warning(
        f"{name} is a name of the AWS SDK 1, which Java daemons 2.0 to 2.6 know and later ones"
        f" refuse: {used} is used instead",
        f"keep it while such a daemon reads this file, else write {used}",
    )


def _own_profile_file(name: str) -> Problem:
    return _warning(
        f"{name} with the path of a credentials file is skipped",
        "set AWS_SHARED_CREDENTIALS_FILE to that path and write"
        " ProfileCredentialsProvider|<profile>",
    )


def _unknown(name: str) -> Problem:
    known = "supported: " + ", ".join(supported_names())
    shown = repr(mask(name))
    if name.strip() != name:
        return _warning(f"{shown} is skipped: there is a blank before the bar", known)
    short = name.rpartition(".")[2]
    if short in ADVICE:
        return _warning(
            f"{shown} is skipped: it has no counterpart here", f"{ADVICE[short]}; {known}"
        )
    close = difflib.get_close_matches(short, supported_names(), n=1)
    advice = f"did you mean {close[0]}? {known}" if close else known
    return _warning(f"{shown} is skipped: no such credentials provider", advice)


def _assume_role(params: list[str], problems: list[Problem]) -> CredentialStep | None:
    if len(params) < 2 or not params[0] or not params[1]:
        problems.append(
            _warning(
                "StsAssumeRoleCredentialsProvider is skipped: role ARN and session name are needed",
                "write StsAssumeRoleCredentialsProvider|<role ARN>|<session name>",
            )
        )
        return None
    nested = _nested(params[2:], problems)
    region, endpoint = nested.get("endpointRegion"), None
    if "endpoint" in nested:
        endpoint, caret, region = nested["endpoint"].partition("^")
        if not (endpoint and caret and region) or "^" in region:
            problems.append(
                _warning(
                    f"the assume-role entry is skipped: Invalid ENDPOINT: {mask(nested['endpoint'])}",
                    "write endpoint=<url>^<signing region>",
                )
            )
            return None
        if not endpoint.startswith(("http://", "https://")):
            endpoint = f"https://{endpoint}"
    if region is not None and not REGION.match(region):
        problems.append(
            _warning(f"the assume-role entry is skipped: Invalid region name: {mask(region)}")
        )
        return None
    role = AssumedRole(params[0], params[1], nested.get("externalId"), region, endpoint)
    return CredentialStep(CredentialSource.ASSUME_ROLE, role=role)


def _nested(params: list[str], problems: list[Problem]) -> dict[str, str]:
    """The ``key=value`` parameters that Java knows; the last of a kind wins."""
    nested: dict[str, str] = {}
    for param in params:
        parts = param.split("=")
        if len(parts) != 2 or not parts[1]:
            kind = "Malformed nested key" if len(parts) > 2 else "Parameter is not a nested key"
            problems.append(_warning(f"{kind}, ignored: {mask(param.partition('=')[0])}"))
        elif parts[0] not in {"endpointRegion", "endpoint", "externalId"}:
            problems.append(
                _warning(
                    f"Unsupported nested key, ignored: {mask(parts[0])}",
                    "supported: endpointRegion, endpoint, externalId",
                )
            )
        else:
            nested[parts[0]] = parts[1]
    return nested


def _warning(text: str, suggestion: str = "") -> Problem:
    return Problem(Severity.WARNING, text, suggestion)
