"""System properties are translated, refused or said to have no effect."""

import pytest

from kcl_mld.errors import ConfigError
from kcl_mld.ops.rules.java_properties import VARIABLES, Translated, translate


@pytest.mark.parametrize(("name", "variable"), VARIABLES.items())
def test_what_has_a_variable_becomes_it(name, variable):
    assert translate({name: "x"}, {}) == Translated({variable: "x"}, None, ())


@pytest.mark.parametrize("name", ["aws.endpointUrlDynamodb", "aws.endpointUrlCloudwatch"])
def test_a_service_may_be_written_in_other_capitals(name):
    (variable,) = translate({name: "http://a"}, {}).variables
    assert variable == "AWS_ENDPOINT_URL_" + name.removeprefix("aws.endpointUrl").upper()


@pytest.mark.parametrize("there", ["", "eu-west-1"])
def test_a_variable_that_is_empty_or_says_the_same_may_be_there(there):
    made = translate({"aws.region": "eu-west-1"}, {"AWS_REGION": there})
    assert made.variables == {"AWS_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("aws.accessKeyId", "set AWS_ACCESS_KEY_ID"),
        ("aws.secretAccessKey", "set AWS_ACCESS_KEY_ID"),
        ("aws.secretKey", "set AWS_ACCESS_KEY_ID"),
        ("aws.sessionToken", "set AWS_ACCESS_KEY_ID"),
        ("aws.accountId", "set AWS_ACCESS_KEY_ID"),
        ("http.proxyHost", "set HTTPS_PROXY and NO_PROXY"),
        ("https.proxyPort", "set HTTPS_PROXY and NO_PROXY"),
        ("http.nonProxyHosts", "set HTTPS_PROXY and NO_PROXY"),
        ("socksProxyHost", "set HTTPS_PROXY and NO_PROXY"),
        ("java.net.socks.username", "set HTTPS_PROXY and NO_PROXY"),
        ("java.net.useSystemProxies", "set HTTPS_PROXY and NO_PROXY"),
        ("javax.net.ssl.trustStore", "AWS_CA_BUNDLE"),
        ("logback.debug", "give -l FILE"),
        ("log4j.configuration", "give -l FILE"),
        ("log4j2.configurationFile", "give -l FILE"),
        ("java.util.logging.config.file", "give -l FILE"),
        ("aws.containerAuthorizationToken", "the environment"),
        ("aws.partitionsFile", "the environment"),
        ("AWS.region", "the environment"),
        ("aws.endpointUrlS3", "the environment"),
        ("com.amazonaws.sdk.disableCertChecking", "the environment"),
        ("com.amazonaws.regions.RegionUtils.fileOverride", "the environment"),
        ("java.class.path", "give -cp"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_advice_and_without_its_value(name, advice):
    with pytest.raises(ConfigError, match=advice) as refused:
        translate({name: "s3cr3t"}, {})
    assert f"-D{name} " in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


CONTRADICTS = "contradicts AWS_PROFILE of the environment, which children get: keep one of them"


def test_all_that_is_refused_is_named_at_once():
    given = {"aws.region": "", "aws.profile": "b", "http.proxyHost": "p", "user.timezone": "UTC"}
    with pytest.raises(ConfigError) as refused:
        translate(given, {"AWS_PROFILE": "a"})
    assert str(refused.value).splitlines() == [
        "-Daws.region is empty: take it out, or set AWS_REGION",
        f"-Daws.profile {CONTRADICTS}",
        "-Dhttp.proxyHost can't be translated: set HTTPS_PROXY and NO_PROXY",
    ]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("logback.xml", "logback.xml"),
        ("/etc/logback.xml", "/etc/logback.xml"),
        ("file:/etc/logback.xml", "/etc/logback.xml"),
        ("file:///etc/logback.xml", "/etc/logback.xml"),
    ],
)
def test_a_file_of_logback_is_taken(value, path):
    made = translate({"logback.configurationFile": value}, {})
    assert made == Translated({}, path, ())


@pytest.mark.parametrize("value", ["", "https://a/logback.xml", "file://host/logback.xml"])
def test_another_place_of_logback_is_refused(value):
    with pytest.raises(ConfigError, match="names no file: give -l FILE"):
        translate({"logback.configurationFile": value}, {})


def test_other_properties_have_no_effect():
    names = ("aws.cborEnabled", "aws.retryMode", "file.encoding", "log4j2.formatMsgNoLookups")
    given = dict.fromkeys(reversed(names), "true")
    assert translate(given, {}) == Translated({}, None, names)
