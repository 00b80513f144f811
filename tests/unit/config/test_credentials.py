"""The grammar of AwsCredentialsProvider: every name, every parameter, every outcome."""

import pytest

from kcl_mld.config.credentials import (
    AssumedRole,
    CredentialChain,
    CredentialSource as Source,
    CredentialStep as Step,
    parse_chain,
    supported_names,
)

ROLE = "arn:aws:iam::123456789012:role/reader"


def steps(value):
    return parse_chain(value)[0].steps


def texts(value):
    return [problem.text for problem in parse_chain(value)[1]]


@pytest.mark.parametrize("source", [s for s in Source if s is not Source.ASSUME_ROLE])
@pytest.mark.parametrize("package", ["", "software.amazon.awssdk.auth.credentials."])
def test_every_plain_name_gives_its_provider(source, package):
    assert parse_chain(package + source) == (CredentialChain((Step(source),)), ())


@pytest.mark.parametrize(
    "name",
    [
        "StsAssumeRoleCredentialsProvider",
        "KclStsAssumeRoleCredentialsProvider",
        "software.amazon.awssdk.services.sts.auth.StsAssumeRoleCredentialsProvider",
        "software.amazon.kinesis.multilang.auth.KclStsAssumeRoleCredentialsProvider",
    ],
)
def test_every_name_of_the_assume_role_provider_is_known(name):
    assert steps(f"{name}|{ROLE}|sess") == (
        Step(Source.ASSUME_ROLE, role=AssumedRole(ROLE, "sess")),
    )


def test_entries_are_trimmed_and_empty_ones_skipped():
    value = " , DefaultCredentialsProvider ,, AnonymousCredentialsProvider,"
    assert parse_chain(value) == (
        CredentialChain((Step(Source.DEFAULT), Step(Source.ANONYMOUS))),
        (),
    )


@pytest.mark.parametrize("value", ["", " ", ",", "|", "||,"])
def test_a_value_without_a_name_gives_an_empty_chain(value):
    assert steps(value) == ()


def test_an_unknown_name_is_skipped_and_the_next_used():
    assert steps("ABCD, EnvironmentVariableCredentialsProvider") == (Step(Source.ENVIRONMENT),)
    (problem,) = parse_chain("ABCD, EnvironmentVariableCredentialsProvider")[1]
    assert "'ABCD' is skipped" in problem.text
    assert all(name in problem.suggestion for name in supported_names())


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("SystemPropertyCredentialsProvider", "write EnvironmentVariableCredentialsProvider;"),
        ("StaticCredentialsProvider|a|b", "write EnvironmentVariableCredentialsProvider;"),
        ("ProcessCredentialsProvider|a", "write ProfileCredentialsProvider|<profile>;"),
        ("ClasspathPropertiesFileCredentialsProvider", "put the keys into a profile"),
        ("com.amazonaws.auth.PropertiesFileCredentialsProvider|/k", "put the keys into a profile"),
        ("SystemPropertiesCredentialsProvider", "write EnvironmentVariableCredentialsProvider;"),
        ("profile.ProfileCredentialsProvider|/f|dev", "AWS_SHARED_CREDENTIALS_FILE"),
        ("AwsCredentialsProviderChain", "write DefaultCredentialsProvider;"),
        ("StsWebIdentityTokenFileCredentialsProvider", "write WebIdentityTokenFileCredentials"),
        ("defaultcredentialsprovider", "supported: "),
        ("DefaultCredentialProvider", "did you mean DefaultCredentialsProvider?"),
        ("com.example.MyProvider", "supported: "),
        ("ProfileCredentialsProvider |dev", "supported: "),
        ("|x", "supported: "),
    ],
)
def test_a_name_without_a_meaning_here_is_skipped_with_advice(name, advice):
    chain, (problem,) = parse_chain(name)
    assert chain.steps == ()
    assert advice in problem.suggestion


def test_a_secret_in_place_of_a_name_is_not_repeated():
    (text,) = texts("AKIAIOSFODNN7EXAMPLE|wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    assert "AKIA" not in text


@pytest.mark.parametrize("package", ["", "com.amazonaws.auth."])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DefaultAWSCredentialsProviderChain", [Step(Source.DEFAULT)]),
        (
            "EC2ContainerCredentialsProviderWrapper",
            [Step(Source.CONTAINER), Step(Source.INSTANCE)],
        ),
        ("WebIdentityTokenCredentialsProvider", [Step(Source.WEB_IDENTITY)]),
        ("profile.ProfileCredentialsProvider", [Step(Source.PROFILE)]),
        ("profile.ProfileCredentialsProvider|dev", [Step(Source.PROFILE, profile="dev")]),
        (
            f"STSAssumeRoleSessionCredentialsProvider|{ROLE}|sess",
            [Step(Source.ASSUME_ROLE, role=AssumedRole(ROLE, "sess"))],
        ),
    ],
)
def test_a_name_of_the_sdk_1_stands_for_its_like_with_a_warning(package, name, expected):
    chain, (problem,) = parse_chain(package + name)
    assert list(chain.steps) == expected
    assert problem.severity == "warning"
    assert "a name of the AWS SDK 1" in problem.text
    assert problem.suggestion.endswith(f"write {', '.join(step.source for step in expected)}")


@pytest.mark.parametrize(
    "source", [Source.ENVIRONMENT, Source.INSTANCE, Source.CONTAINER], ids=lambda one: one.name
)
def test_a_short_name_of_both_sdks_needs_no_warning_and_a_qualified_one_does(source):
    assert texts(source) == []
    assert steps(f"com.amazonaws.auth.{source}") == steps(source) == (Step(source),)
    assert len(texts(f"com.amazonaws.auth.{source}")) == 1


@pytest.mark.parametrize("package", ["", "software.amazon.kinesis.multilang.auth."])
def test_the_assume_role_provider_of_kcl_2_takes_nested_words(package):
    name = f"{package}KclSTSAssumeRoleSessionCredentialsProvider"
    value = f"{name}|{ROLE}|sess|endpointRegion=eu-west-1|externalId=x"
    assert steps(value) == (
        Step(Source.ASSUME_ROLE, role=AssumedRole(ROLE, "sess", "x", "eu-west-1")),
    )
    assert [text.partition(" ")[0] for text in texts(value)] == [name]


def test_a_list_for_fleets_of_both_sdks_asks_each_provider_once():
    assert steps("DefaultAWSCredentialsProviderChain, DefaultCredentialsProvider") == (
        Step(Source.DEFAULT),
    )


def test_a_profile_may_be_named():
    assert parse_chain("ProfileCredentialsProvider|dev") == (
        CredentialChain((Step(Source.PROFILE, profile="dev"),)),
        (),
    )


def test_a_profile_with_two_parameters_is_the_default_profile_as_in_java():
    assert steps("ProfileCredentialsProvider|dev|x") == (Step(Source.PROFILE),)
    (text,) = texts("ProfileCredentialsProvider|dev|x")
    assert text.endswith("with more than one parameter: the default profile is used, as in Java")


def test_empty_parameters_at_the_end_do_not_count():
    assert parse_chain("ProfileCredentialsProvider|") == (
        CredentialChain((Step(Source.PROFILE),)),
        (),
    )


def test_a_parameter_of_another_provider_is_dropped():
    assert steps("DefaultCredentialsProvider|x") == (Step(Source.DEFAULT),)
    assert texts("DefaultCredentialsProvider|x") == [
        "DefaultCredentialsProvider with a parameter: ignored, as in Java"
    ]


def role_of(params):
    (step,) = steps(f"StsAssumeRoleCredentialsProvider|{ROLE}|sess|{params}")
    return step.role


@pytest.mark.parametrize(
    ("params", "role"),
    [
        ("endpointRegion=us-east-1|externalId=e", AssumedRole(ROLE, "sess", "e", "us-east-1")),
        ("externalId=e|endpointRegion=us-east-1", AssumedRole(ROLE, "sess", "e", "us-east-1")),
        (
            "endpoint=sts.us-east-1.amazonaws.com^us-east-1",
            AssumedRole(ROLE, "sess", None, "us-east-1", "https://sts.us-east-1.amazonaws.com"),
        ),
        (
            "endpoint=http://127.0.0.1:5000^eu-west-1|endpointRegion=us-east-1",
            AssumedRole(ROLE, "sess", None, "eu-west-1", "http://127.0.0.1:5000"),
        ),
        ("externalId=a|externalId=b", AssumedRole(ROLE, "sess", "b")),
        ("foo=bar|externalId=eid=extra|hello|externalId=", AssumedRole(ROLE, "sess")),
    ],
)
def test_nested_parameters_of_an_assumed_role(params, role):
    assert role_of(params) == role


def test_nested_parameters_that_java_ignores_leave_a_warning_each():
    value = f"StsAssumeRoleCredentialsProvider|{ROLE}|s|foo=bar|externalId=eid=extra|hello"
    assert texts(value) == [
        "Unsupported nested key, ignored: foo",
        "Malformed nested key, ignored: externalId",
        "Parameter is not a nested key, ignored: hello",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("StsAssumeRoleCredentialsProvider", "role ARN and session name are needed"),
        (f"StsAssumeRoleCredentialsProvider|{ROLE}", "role ARN and session name are needed"),
        ("StsAssumeRoleCredentialsProvider||sess", "role ARN and session name are needed"),
        (f"StsAssumeRoleCredentialsProvider|{ROLE}||externalId=e", "role ARN and session name"),
        (
            f"StsAssumeRoleCredentialsProvider|{ROLE}|s|endpointRegion=snuffleupagus",
            "Invalid region",
        ),
        (f"StsAssumeRoleCredentialsProvider|{ROLE}|s|endpoint=x", "Invalid ENDPOINT: x"),
        (f"StsAssumeRoleCredentialsProvider|{ROLE}|s|endpoint=x^", "Invalid ENDPOINT: x^"),
        (f"StsAssumeRoleCredentialsProvider|{ROLE}|s|endpoint=^us-east-1", "Invalid ENDPOINT"),
        (f"StsAssumeRoleCredentialsProvider|{ROLE}|s|endpoint=x^y^us-east-1", "Invalid ENDPOINT"),
        (f"StsAssumeRoleCredentialsProvider | {ROLE} | s", "blank before the bar"),
    ],
)
def test_an_assume_role_entry_that_cannot_be_built_is_skipped(value, text):
    chain, problems = parse_chain(value)
    assert chain.steps == ()
    assert text in problems[-1].text


def test_a_chain_shows_itself_without_its_external_id():
    value = (
        f"ProfileCredentialsProvider|dev,StsAssumeRoleCredentialsProvider|{ROLE}|s|externalId=geheim"
        f",StsAssumeRoleCredentialsProvider|{ROLE}|s|endpoint=sts.x^us-east-1"
        f",StsAssumeRoleCredentialsProvider|{ROLE}|s|endpointRegion=us-east-1"
    )
    chain, _ = parse_chain(value)
    assert str(chain) == (
        f"ProfileCredentialsProvider|dev, StsAssumeRoleCredentialsProvider|{ROLE}|s|externalId=****"
        f", StsAssumeRoleCredentialsProvider|{ROLE}|s|endpoint=https://sts.x^us-east-1"
        f", StsAssumeRoleCredentialsProvider|{ROLE}|s|endpointRegion=us-east-1"
    )
    assert "geheim" not in repr(chain)
