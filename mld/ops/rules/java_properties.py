"""What system properties of a ``java`` command line, ``-Dname=value``, mean without a JVM.

Those of credentials, region, endpoints, proxies, certificates and logging are translated or
refused, as a worker without them would read another stream or write into another table. The others
have no effect, which is said. Values are never shown: some are secrets.

Source of names: SdkSystemSetting and ProfileFileSystemSetting of the AWS SDK for Java 2.20 to 2.33.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Property -> the variable of the same meaning, which comes after the properties file, too.
VARIABLES = {
    "aws.region": "AWS_REGION",
    "aws.profile": "AWS_PROFILE",
    "aws.configFile": "AWS_CONFIG_FILE",
    "aws.sharedCredentialsFile": "AWS_SHARED_CREDENTIALS_FILE",
    "aws.roleArn": "AWS_ROLE_ARN",
    "aws.roleSessionName": "AWS_ROLE_SESSION_NAME",
    "aws.webIdentityTokenFile": "AWS_WEB_IDENTITY_TOKEN_FILE",
    "aws.containerCredentialsPath": "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "aws.containerCredentialsFullUri": "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "aws.containerAuthorizationTokenFile": "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "aws.disableEc2Metadata": "AWS_EC2_METADATA_DISABLED",
    "aws.ec2MetadataServiceEndpoint": "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "aws.ec2MetadataServiceEndpointMode": "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
    "aws.useFipsEndpoint": "AWS_USE_FIPS_ENDPOINT",
    "aws.useDualstackEndpoint": "AWS_USE_DUALSTACK_ENDPOINT",
    "aws.accountIdEndpointMode": "AWS_ACCOUNT_ID_ENDPOINT_MODE",
    "aws.endpointUrl": "AWS_ENDPOINT_URL",
    "aws.endpointUrlKinesis": "AWS_ENDPOINT_URL_KINESIS",
    "aws.endpointUrlDynamoDb": "AWS_ENDPOINT_URL_DYNAMODB",
    "aws.endpointUrlDynamoDbStreams": "AWS_ENDPOINT_URL_DYNAMODB_STREAMS",
    "aws.endpointUrlCloudWatch": "AWS_ENDPOINT_URL_CLOUDWATCH",
    "aws.endpointUrlSts": "AWS_ENDPOINT_URL_STS",
    "aws.endpointUrlGlue": "AWS_ENDPOINT_URL_GLUE",
}
_ENDPOINTS = "aws.endpointUrl"
#: The capitals of a service's name differ between versions of the SDK.
_FOLDED = {
    name.lower(): variable for name, variable in VARIABLES.items() if name.startswith(_ENDPOINTS)
}
_LOGBACK_FILE = "logback.configurationFile"
_NO_SECRETS = (
    "every user of this machine can read command lines: set AWS_ACCESS_KEY_ID,"
    " AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or use a profile"
)
#: What is refused, and what to do instead; the first that matches counts.
_REFUSED = (
    (
        re.compile(r"aws\.(?:accessKeyId|secretAccessKey|secretKey|sessionToken|accountId)"),
        _NO_SECRETS,
    ),
    (
        re.compile(r"(?i).*(?:prox(?:y|ies)|tunneling|java\.net\.socks).*"),
        "set HTTPS_PROXY and NO_PROXY",
    ),
    (re.compile(r"javax\.net\.ssl\..*"), "name a file of certificates in AWS_CA_BUNDLE"),
    (
        re.compile(r"logback\..*|log4j2?\.configuration(?:File)?|java\.util\.logging\.config\..*"),
        "take it out, and give -l FILE or -Dlogback.configurationFile=FILE for levels",
    ),
    (
        re.compile(
            r"(?i)(?:aws|com\.amazonaws)\..*(?:account|cert|credential|endpoint|metadata|partition"
            r"|profile|region|role|secret|sigv4a|token).*"
        ),
        "take it out, or write what it means into the properties file or the environment",
    ),
    (re.compile(r"java\.class\.path"), "give -cp"),
)


@dataclass(frozen=True, slots=True)
class Translated:
    """System properties as what kcl-mld takes.

    Attributes:
        variables: to be added to the environment, of the children, too.
        log_configuration: path or name on the class path of a logback file, or None.
        ignored: names of those without an effect, sorted.
    """

    variables: Mapping[str, str]
    log_configuration: str | None
    ignored: tuple[str, ...]


def translate(properties: Mapping[str, str], environ: Mapping[str, str]) -> Translated:
    """What properties mean.

    Args:
        environ: in Java a property comes before its variable; here the children would get it, too,
            so one that contradicts its variable is refused.

    Raises:
        ConfigError: some can't be translated; lists each with what to do.
    """
    variables: dict[str, str] = {}
    faults: list[str] = []
    ignored: list[str] = []
    logback = None
    for name, value in properties.items():
        variable = VARIABLES.get(name)
        if name.startswith(_ENDPOINTS):
            variable = _FOLDED.get(name.lower())
        if variable is not None:
            if (why := _fault(variable, value, environ)) is None:
                variables[variable] = value
            else:
                faults.append(f"-D{name} {why}")
        elif name == _LOGBACK_FILE:
            logback = _path(value)
            if logback is None:
                faults.append(f"-D{name} names no file: give -l FILE")
        elif (advice := _advice(name)) is not None:
            faults.append(f"-D{name} can't be translated: {advice}")
        else:
            ignored.append(name)
    if faults:
        raise ConfigError("\n".join(faults))
    return Translated(variables, logback, tuple(sorted(ignored)))


def _fault(variable: str, value: str, environ: Mapping[str, str]) -> str | None:
    if not value:
        return f"is empty: take it out, or set {variable}"
    if environ.get(variable, value) not in {"", value}:
        return f"contradicts {variable} of the environment, which children get: keep one of them"
    return None


def _path(value: str) -> str | None:
    """The file of a value of logback's, which may be a URL; None = another URL, or nothing."""
    scheme, colon, rest = value.partition(":")
    if not colon:
        return value or None
    path = rest.removeprefix("//")
    return path if scheme == "file" and path.startswith("/") else None


def _advice(name: str) -> str | None:
    return next((advice for pattern, advice in _REFUSED if pattern.fullmatch(name)), None)
