"""Keeps secrets and control characters out of what is printed or logged.

A ``.properties`` file should hold no secrets, but access keys, tokens and URLs with passwords do
get pasted into it. When in doubt, masking hides a text.
"""

from __future__ import annotations

import re

MASK = "****"
#: Longest part of one text that is shown.
_MOST_CHARACTERS = 2000
_BRIEF_CHARACTERS = 40

#: AWS access key ids: a four-letter prefix of the kind and 12 or more capitals and digits.
_KEY_ID = re.compile(r"\b(?:A3T[A-Z0-9]|ABIA|ACCA|AGPA|AIDA|AKIA|AROA|ASCA|ASIA)[A-Z0-9]{12,}\b")
#: 40 characters of base64 with upper case, lower case and a digit are an AWS secret key; 100 and
#: more a session token.
_SECRET_KEY = re.compile(
    r"(?<![A-Za-z0-9+/=])(?=[A-Za-z0-9+/]*[A-Z])(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[0-9])"
    r"(?:[A-Za-z0-9+/]{100,}|[A-Za-z0-9+/]{40})={0,2}(?![A-Za-z0-9+/=])"
)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_NAME = r"(?:external[-_]?id|passw(?:or)?d|pwd|passphrase|secret|token|(?:access|api|auth|private)[-_]?key)"
#: What follows such a name in sentences of AWS, botocore, databases and this package. A list, since
#: "token hunter was used" can't be told from prose by its form.
_PROSE = (
    "a access an and are as at authentication authorization available before belongs by can cannot"
    " could denied did do does else end ended ends exists expected expires expired expiry fails"
    " failed file files for found from given has have held holds id ids if in included into invalid"
    " is isn key keys lives manager may means metadata mismatch missing must name names never not"
    " now of on only or parsing presented provided provider provider's refresh registration rejected"
    " required revoked said says sent service signature specified string supplied text that the then"
    " they this to token type under unless used using validation value values verification was were"
    " when which who whose will with without would you"
).replace(" ", "|")
#: Behind the name of an error, e.g. ``ExpiredTokenException`` or ``TokenRetrievalError``, is what
#: is wrong. An option's value is a secret whatever it looks like, and so is what follows an equals
#: sign.
_NAMED = re.compile(
    rf"(?i)(?!(?<!-){_NAME}[\w-]{{0,40}}\s{{0,3}}:?\s{{0,3}}\b(?:{_PROSE})"
    r"(?=[.,;:!?)'\"\]]{0,3}(?:\s|$)))"
    rf"({_NAME}(?![\w-]{{0,40}}(?:Exception\b|Error:))[\w-]{{0,40}}\s{{0,3}}[=: ]\s{{0,3}})"
    r"[^\s|,]+"
)
#: The same name in quotes, as in JSON or a dict that is printed, where its value is.
_QUOTED = re.compile(
    rf"(?i)({_NAME}[\w-]{{0,40}}\\?[\"']\s{{0,3}}[:=]\s{{0,3}})"
    r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[\"'][^\n]*|[^\s|,}]+)"
)
_SECRET_NAME = re.compile(
    r"(?i)passw(or)?d|pwd|passphrase|secret|token|(access|api|auth|private)[-_.]?key|external[-_.]?id"
    r"|\.credential$"
)


def mask(text: str) -> str:
    """The text with everything that looks like a secret replaced by ``****``.

    Hidden are: AWS access key ids and secret keys by their form, user names and passwords in URLs,
    and what follows a word such as ``password``, ``secret``, ``token`` or ``externalId``, unless it
    is a common word of a sentence: "the token included in the request".
    """
    for pattern in (_KEY_ID, _SECRET_KEY, _USER_INFO):
        text = pattern.sub(MASK, text)
    return _NAMED.sub(rf"\1{MASK}", _QUOTED.sub(rf"\1{MASK}", text))


def mask_value(key: str, value: str) -> str:
    """The value of a property as it may be shown; wholly hidden when the key's name says secret."""
    return MASK if value and _SECRET_NAME.search(key) else mask(value)


def brief(text: str) -> str:
    """The text as :func:`printable` has it, cut after some 40 characters: for a word in an error."""
    cut = len(text) - _BRIEF_CHARACTERS
    if cut <= _BRIEF_CHARACTERS // 2:  # to say that some are left out takes as many
        return printable(text)
    return f"{printable(text[:_BRIEF_CHARACTERS])}… [{cut} characters more]"


def printable(text: str) -> str:
    """The text on one line, control characters and lone surrogates escaped, cut where it is endless.

    Names and values in files and tables are free texts of others.
    """
    cut = len(text) - _MOST_CHARACTERS
    if cut > 0:
        return f"{printable(text[:_MOST_CHARACTERS])}… [{cut} characters more]"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
