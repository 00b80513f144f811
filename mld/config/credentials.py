"""The value grammar of ``AwsCredentialsProvider``, parsed without any lookup.

``value := entry ("," entry)*``, ``entry := name ("|" param)*``. An entry is trimmed, a parameter
is not, and a blank before the first bar makes the name unresolvable. In Java an entry that cannot
be built vanishes silently; here it leaves a warning.

The MultiLangDaemon 2.0 to 2.6 builds classes of the SDK 1 (``com.amazonaws.auth``), 2.7 and 3.x
those of the SDK 2; neither knows the other's names. A file that serves such a fleet must serve
kcl-mld beside it, so a name of the SDK 1 stands for the source that has the same credentials.

Source: AwsCredentialsProviderPropertyValueDecoder, KclStsAssumeRoleCredentialsProvider and
NestedPropertyKey of the MultiLangDaemon 2.0.0, 2.5.4, 2.7.2 and 3.5.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from kcl_mld.config.findings import Problem, Severity, nearest
from kcl_mld.kernel.model.masking import mask


class CredentialSource(StrEnum):
    """Where one entry of a chain takes credentials from; the value is Java's class name."""

    DEFAULT = "DefaultCredentialsProvider"
    ENVIRONMENT = "EnvironmentVariableCredentialsProvider"
    PROFILE = "ProfileCredentialsProvider"
    INSTANCE = "InstanceProfileCredentialsProvider"
    CONTAINER = "ContainerCredentialsProvider"
    WEB_IDENTITY = "WebIdentityTokenFileCredentialsProvider"
    ANONYMOUS = "AnonymousCredentialsProvider"
    ASSUME_ROLE = "StsAssumeRoleCredentialsProvider"


_SDK_PACKAGE = "software.amazon.awssdk.auth.credentials."
_KCL_PACKAGE = "software.amazon.kinesis.multilang.auth."
_STS_PACKAGE = "software.amazon.awssdk.services.sts.auth."
_SDK1_PACKAGE = "com.amazonaws.auth."

#: Name, short or qualified -> source, as the MultiLangDaemon 2.7 and 3.x build them.
_SDK_NAMES: dict[str, CredentialSource] = {
    name: source
    for source in CredentialSource
    if source is not CredentialSource.ASSUME_ROLE
    for name in (str(source), f"{_SDK_PACKAGE}{source}")
} | dict.fromkeys(
    (
        "StsAssumeRoleCredentialsProvider",
        "KclStsAssumeRoleCredentialsProvider",
        f"{_STS_PACKAGE}StsAssumeRoleCredentialsProvider",
        f"{_KCL_PACKAGE}KclStsAssumeRoleCredentialsProvider",
    ),
    CredentialSource.ASSUME_ROLE,
)

_SDK1_CLASSES: dict[str, tuple[CredentialSource, ...]] = {
    f"{_SDK1_PACKAGE}DefaultAWSCredentialsProviderChain": (CredentialSource.DEFAULT,),
    f"{_SDK1_PACKAGE}EnvironmentVariableCredentialsProvider": (CredentialSource.ENVIRONMENT,),
    f"{_SDK1_PACKAGE}InstanceProfileCredentialsProvider": (CredentialSource.INSTANCE,),
    f"{_SDK1_PACKAGE}ContainerCredentialsProvider": (CredentialSource.CONTAINER,),
    f"{_SDK1_PACKAGE}EC2ContainerCredentialsProviderWrapper": (
        CredentialSource.CONTAINER,
        CredentialSource.INSTANCE,
    ),
    f"{_SDK1_PACKAGE}WebIdentityTokenCredentialsProvider": (CredentialSource.WEB_IDENTITY,),
    f"{_SDK1_PACKAGE}profile.ProfileCredentialsProvider": (CredentialSource.PROFILE,),
    f"{_SDK1_PACKAGE}STSAssumeRoleSessionCredentialsProvider": (CredentialSource.ASSUME_ROLE,),
    f"{_KCL_PACKAGE}KclSTSAssumeRoleSessionCredentialsProvider": (CredentialSource.ASSUME_ROLE,),
}
#: Name, short or qualified -> sources in their order, as the MultiLangDaemon 2.0 to 2.6 builds
#: them. Short names that both SDKs have mean the same in both and are in ``_SDK_NAMES``.
_SDK1_NAMES: dict[str, tuple[CredentialSource, ...]] = {
    name: sources
    for qualified, sources in _SDK1_CLASSES.items()
    for name in (
        qualified,
        qualified.removeprefix(_SDK1_PACKAGE).removeprefix(_KCL_PACKAGE),
    )
    if name not in _SDK_NAMES
}

_TO_PROFILE = "put the keys into a profile and write ProfileCredentialsProvider|<profile>"
_TO_ENVIRONMENT = "write EnvironmentVariableCredentialsProvider"
#: Classes of either SDK that have no counterpart here, and the alternative.
_ADVICE = {
    "ContainerCredentialsProviderWrapper": "write ContainerCredentialsProvider",
    "StsWebIdentityTokenFileCredentialsProvider": "write WebIdentityTokenFileCredentialsProvider",
    "AWSStaticCredentialsProvider": _TO_ENVIRONMENT,
    "StaticCredentialsProvider": _TO_ENVIRONMENT,
    "SystemPropertyCredentialsProvider": _TO_ENVIRONMENT,
    "SystemPropertiesCredentialsProvider": _TO_ENVIRONMENT,
    "ClasspathPropertiesFileCredentialsProvider": _TO_PROFILE,
    "PropertiesFileCredentialsProvider": _TO_PROFILE,
    "ProcessCredentialsProvider": "name the process in a profile and write"
    " ProfileCredentialsProvider|<profile>",
    "AwsCredentialsProviderChain": "write DefaultCredentialsProvider",
    "AWSCredentialsProviderChain": "write DefaultCredentialsProvider",
}


@dataclass(frozen=True, slots=True)
class AssumedRole:
    """What AssumeRole is asked for; the base credentials are the default chain's.

    Attributes:
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
    sources = _SDK1_NAMES.get(name)
    if name in _SDK_NAMES:
        sources = (_SDK_NAMES[name],)
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
    if short in _ADVICE:
        return _warning(
            f"{shown} is skipped: it has no counterpart here", f"{_ADVICE[short]}; {known}"
        )
    close = nearest(short, supported_names())
    advice = f"did you mean {close}? {known}" if close else known
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
