"""Names of credentials providers: those of the AWS SDK 2, and those of the SDK 1 with their like.

The MultiLangDaemon 2.0 to 2.6 builds classes of the SDK 1 (``com.amazonaws.auth``), 2.7 and 3.x
those of the SDK 2; neither knows the other's names. A file that serves such a fleet must serve
kcl-mld beside it, so a name of the SDK 1 stands for the source that has the same credentials.

Source: AWSCredentialsProviderPropertyValueDecoder of KCL 2.0.0, 2.5.4 and 2.7.2.
"""

from __future__ import annotations

from enum import StrEnum


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
SDK_NAMES: dict[str, CredentialSource] = {
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
#: them. Short names that both SDKs have mean the same in both and are in ``SDK_NAMES``.
SDK1_NAMES: dict[str, tuple[CredentialSource, ...]] = {
    name: sources
    for qualified, sources in _SDK1_CLASSES.items()
    for name in (
        qualified,
        qualified.removeprefix(_SDK1_PACKAGE).removeprefix(_KCL_PACKAGE),
    )
    if name not in SDK_NAMES
}

_TO_PROFILE = "put the keys into a profile and write ProfileCredentialsProvider|<profile>"
_TO_ENVIRONMENT = "write EnvironmentVariableCredentialsProvider"
#: Classes of one SDK or the other that have no counterpart here, and what to do instead.
ADVICE = {
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
