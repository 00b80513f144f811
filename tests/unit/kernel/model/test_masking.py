"""What looks like a secret is never shown."""

import pytest

from kcl_mld.kernel.model.masking import brief, mask, mask_value, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("AKIAIOSFODNN7EXAMPLE", "****"),
        ("id ASIAIOSFODNN7EXAMPLE.", "id ****."),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "****"),
        ("aB3" * 40, "****"),
        ("http://user:pw@host:1/x", "http://****@host:1/x"),
        ("python app.py --password hunter2 -v", "python app.py --password **** -v"),
        ("x|externalId=geheim|y", "x|externalId=****|y"),
        ("SECRET_KEY = abc", "SECRET_KEY = ****"),
        ("token: abc", "token: ****"),
        ("app.py --api-key abc -v", "app.py --api-key **** -v"),
        ("db.pwd=abc", "db.pwd=****"),
        ("tokenExceptional=abc", "tokenExceptional=****"),
        ("token=included in", "token=**** in"),
        ("app.py --token included -v", "app.py --token **** -v"),
        ("token: abc123def", "token: ****"),
        ("Token abc", "Token ****"),
        ("Token abc for bob", "Token **** for bob"),
        ("Token for-geheim", "Token ****"),
        ("token : abc", "token : ****"),
        ("token: token abc", "token: token ****"),
        ("password hunter was wrong", "password **** was wrong"),
        ('{"token": "abc, def", "x": 1}', '{"token": ****, "x": 1}'),
        (r'{"Password":"a\"b"}', '{"Password":****}'),
        ("{'SessionToken': 'abc'}", "{'SessionToken': ****}"),
        (r"{\"secret\": \"abc\"}", r"{\"secret\": ****}"),
        ('"api_key" = 12', '"api_key" = ****'),
        ('"token": "no end of it\nnext', '"token": ****\nnext'),
    ],
)
def test_secrets_are_replaced(text, shown):
    assert mask(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/opt/company/Applications2/consumers/bin/run",
        "arn:aws:kinesis:us-east-1:123456789012:stream/orders",
        "arn:aws:iam::123456789012:role/reader",
        "http://localhost:4566",
        "python secret_santa.py",
        "0123456789abcdef0123456789abcdef01234567",
        "AKIA",
        "GetItem: ExpiredTokenException: The keys are too old",
        "ListShards: ExpiredNextTokenException: why",
        "The security token included in the request is expired",
        "The security token included in the request is invalid.",
        "Error loading SSO Token: Token for http://x does not exist",
        "Error loading SSO Token: Token for http://x is invalid",
        "Error when retrieving token from sso: Token has expired and refresh failed",
        "Check your AWS Secret Access Key and signing method.",
        "it brought keys whose secret key is empty",
        "it brought keys whose session token is no text",
        "Unable to refresh SSO token: missing keys: ['x']",
        'FATAL: password authentication failed for user "x"',
        "the provided token is malformed or otherwise invalid",
        "Invalid pagination token: expired.",
        "SSOTokenLoadError: Error loading SSO Token: Token for corp does not exist",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert mask(text) == text


def test_the_name_of_a_property_may_say_that_all_of_it_is_secret():
    assert mask_value("aws.secretKey", "x y") == "****"
    assert mask_value("my.accessKey", "x") == "****"
    assert mask_value("token", "") == ""
    assert mask_value("streamName", "x y") == "x y"


def test_a_word_in_an_error_is_short():
    assert brief("no\nnumber") == r"no\nnumber"
    assert brief("9" * 60) == "9" * 60
    assert brief("9" * 5000) == "9" * 40 + "… [4960 characters more]"


def test_what_is_printed_stays_on_one_line_and_ends():
    assert printable("a\x1b[2J\r\nb\ud800é") == r"a\x1b[2J\r\nb\ud800é"
    assert printable("x" * 5000) == "x" * 2000 + "… [3000 characters more]"
