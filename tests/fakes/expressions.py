"""Condition, filter, key-condition and update expressions of DynamoDB, on top-level attributes.

An expression is parsed once into closures and evaluated per item. What the daemon never sends
(nested paths, ``DELETE`` of numbers, ...) is refused loudly rather than done wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

from tests.fakes.items import SETS, Item, Value, checked_value, number_text, order_key

_TOKEN = re.compile(r"\s*(?:([#:]?[A-Za-z_][\w\-]*|[#:]\w+)|(<>|<=|>=|[=<>(),+\-.\[\]]))")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class InvalidExpression(Exception):
    """An expression that the service refuses with ValidationException."""


@dataclass
class Scope:
    """Names and values that expressions of one request refer to, and which were used."""

    names: dict[str, str]
    values: Item
    used: set[str] = field(default_factory=set)

    def name(self, token: str) -> str:
        """The attribute that a token means."""
        if not token.startswith("#"):
            return token
        self.used.add(token)
        if token not in self.names:
            raise InvalidExpression(f"An expression attribute name used is not defined: {token}")
        return self.names[token]

    def value(self, token: str) -> Value:
        """The value that a ``:token`` means."""
        self.used.add(token)
        if token not in self.values:
            raise InvalidExpression(f"An expression attribute value used is not defined: {token}")
        return self.values[token]

    def check_all_used(self) -> None:
        """Refuse names and values that no expression mentions."""
        unused = sorted((self.names.keys() | self.values.keys()) - self.used)
        if unused:
            raise InvalidExpression(f"Value provided is unused in expressions: keys: {unused}")


Operand = Callable[[Item, Scope], "Value | None"]
Condition = Callable[[Item, Scope], bool]
#: Reads the item before the update, changes the copy handed in second.
Action = Callable[[Item, Item, Scope], None]


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        text = text.strip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise InvalidExpression(f"Syntax error near {text[position : position + 20]!r}")
            self._tokens.append(match[1] or match[2])
            position = match.end()
        self._at = 0
        #: Every name and value token, so that use is known without evaluating.
        self.references = {t for t in self._tokens if t[0] in "#:"}

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def accept(self, *words: str) -> str:
        """Consume one of the words (any case) and return it in upper case."""
        if self.peek().upper() in words:
            return self.next().upper()
        return ""

    def expect(self, word: str) -> None:
        if (found := self.next()) != word:
            raise InvalidExpression(f"Syntax error; token: {found!r}, expected {word!r}")

    def path(self) -> str:
        token = self.next()
        if not token or not (token[0] == "#" or token[0].isalpha() or token[0] == "_"):
            raise InvalidExpression(f"Syntax error; {token!r} is not an attribute name")
        if self.peek() in {".", "["}:
            raise InvalidExpression("nested attribute paths are not supported by this fake")
        return token

    # --- conditions -------------------------------------------------------------------------

    def condition(self) -> Condition:
        left = self._conjunction()
        while self.accept("OR"):
            left = _either(left, self._conjunction())
        return left

    def _conjunction(self) -> Condition:
        left = self._negation()
        while self.accept("AND"):
            left = _both(left, self._negation())
        return left

    def _negation(self) -> Condition:
        if self.accept("NOT"):
            inner = self._negation()
            return lambda item, scope: not inner(item, scope)
        if self.peek() == "(":
            self.next()
            inner = self.condition()
            self.expect(")")
            return inner
        if self.peek() in _FUNCTIONS:
            return self._function(self.next())
        return self._comparison()

    def _function(self, name: str) -> Condition:
        self.expect("(")
        path = self.path()
        if name in {"attribute_exists", "attribute_not_exists"}:
            self.expect(")")
            wanted = name == "attribute_exists"
            return lambda item, scope: (scope.name(path) in item) is wanted
        self.expect(",")
        argument = self.operand()
        self.expect(")")
        test = _TESTS[name]
        return lambda item, scope: test(item.get(scope.name(path)), argument(item, scope))

    def _comparison(self) -> Condition:
        left = self.operand()
        operator = self.next().upper()
        if operator == "BETWEEN":
            low = self.operand()
            self.expect_word("AND")
            high = self.operand()
            return lambda i, s: (
                compare(">=", left(i, s), low(i, s)) and compare("<=", left(i, s), high(i, s))
            )
        if operator == "IN":
            self.expect("(")
            options = [self.operand()]
            while self.accept(","):
                options.append(self.operand())
            self.expect(")")
            return lambda i, s: any(compare("=", left(i, s), option(i, s)) for option in options)
        if operator not in {"=", "<>", *_COMPARE}:
            raise InvalidExpression(f"Syntax error; token: {operator!r}")
        right = self.operand()
        return lambda item, scope: compare(operator, left(item, scope), right(item, scope))

    def expect_word(self, word: str) -> None:
        if not self.accept(word):
            raise InvalidExpression(f"Syntax error; token: {self.peek()!r}, expected {word}")

    def operand(self) -> Operand:
        if self.peek().startswith(":"):
            token = self.next()
            return lambda _item, scope: scope.value(token)
        if self.peek() == "size":
            self.next()
            self.expect("(")
            sized = self.path()
            self.expect(")")
            return lambda item, scope: _size(item.get(scope.name(sized)))
        path = self.path()
        return lambda item, scope: item.get(scope.name(path))

    # --- updates ----------------------------------------------------------------------------

    def update(self) -> list[tuple[str, Action]]:
        """Pairs of the path changed and what changes it."""
        actions: list[tuple[str, Action]] = []
        clauses: set[str] = set()
        while clause := self.accept("SET", "REMOVE", "ADD", "DELETE"):
            if clause in clauses:
                raise InvalidExpression(f"The {clause!r} section can only be used once")
            clauses.add(clause)
            actions.append(self._action(clause))
            while self.accept(","):
                actions.append(self._action(clause))
        if not actions:
            raise InvalidExpression(f"Syntax error; token: {self.peek()!r}")
        return actions

    def _action(self, clause: str) -> tuple[str, Action]:
        path = self.path()
        if clause == "REMOVE":
            return path, lambda _old, new, scope: _drop(new, scope.name(path))
        if clause == "SET":
            self.expect("=")
            value = self._set_value()
            return path, lambda old, new, scope: _set(new, scope.name(path), value(old, scope))
        operand = self.operand()
        change = add_to if clause == "ADD" else delete_from
        return path, lambda old, new, scope: change(
            new, scope.name(path), _present(operand(old, scope))
        )

    def _set_value(self) -> Operand:
        left = self._set_operand()
        sign = self.accept("+", "-")
        if not sign:
            return left
        right = self._set_operand()
        return lambda item, scope: _sum(left(item, scope), right(item, scope), sign)

    def _set_operand(self) -> Operand:
        if self.peek() != "if_not_exists":
            return self.operand()
        self.next()
        self.expect("(")
        path = self.path()
        self.expect(",")
        default = self._set_operand()
        self.expect(")")
        return lambda item, scope: item.get(scope.name(path)) or default(item, scope)

    def end(self) -> None:
        if self.peek():
            raise InvalidExpression(f"Syntax error; token: {self.peek()!r}")


def _either(left: Condition, right: Condition) -> Condition:
    return lambda item, scope: left(item, scope) or right(item, scope)


def _both(left: Condition, right: Condition) -> Condition:
    return lambda item, scope: left(item, scope) and right(item, scope)


def compare(operator: str, left: Value | None, right: Value | None) -> bool:
    """``left operator right``: false where one is missing or types differ, but true for ``<>``."""
    if operator in {"=", "<>"}:
        same = left is not None and left == right
        return same if operator == "=" else not same
    if left is None or right is None or left.keys() != right.keys():
        return False
    a, b = order_key(left), order_key(right)
    return a is not None and _COMPARE[operator](a, b)


def _begins_with(value: Value | None, prefix: Value | None) -> bool:
    if value is None or prefix is None or value.keys() != prefix.keys():
        return False
    ((kind, content),) = value.items()
    return kind in {"S", "B"} and content.startswith(prefix[kind])


def _contains(value: Value | None, part: Value | None) -> bool:
    if value is None or part is None:
        return False
    ((kind, content),) = value.items()
    if kind == "L":
        return part in content
    ((part_kind, part_content),) = part.items()
    return kind in {part_kind, f"{part_kind}S"} and part_content in content


def _has_type(value: Value | None, kind: Value | None) -> bool:
    return value is not None and kind is not None and kind.get("S") in value


_TESTS: dict[str, Callable[[Value | None, Value | None], bool]] = {
    "begins_with": _begins_with,
    "contains": _contains,
    "attribute_type": _has_type,
}
_FUNCTIONS = {"attribute_exists", "attribute_not_exists", *_TESTS}


def _size(value: Value | None) -> Value | None:
    if value is None:
        return None
    ((_kind, content),) = value.items()
    return {"N": str(len(content))}


def _present(value: Value | None) -> Value:
    if value is None:
        raise InvalidExpression(
            "The provided expression refers to an attribute that does not exist in the item"
        )
    return value


def _set(item: Item, name: str, value: Value | None) -> None:
    item[name] = checked_value(_present(value))


def _drop(item: Item, name: str) -> None:
    item.pop(name, None)


def _sum(left: Value | None, right: Value | None, sign: str) -> Value:
    a, b = _present(left), _present(right)
    if "N" not in a or "N" not in b:
        raise InvalidExpression("Incorrect operand type for operator or function")
    number = Decimal(a["N"]) + (Decimal(b["N"]) if sign == "+" else -Decimal(b["N"]))
    return {"N": number_text(str(number))}


def add_to(item: Item, name: str, value: Value) -> None:
    """``ADD``: a number to a number (absent is 0), a set to a set."""
    ((kind, content),) = value.items()
    if kind != "N" and kind not in SETS:
        raise InvalidExpression("Incorrect operand type for ADD")
    old = item.get(name)
    if old is None:
        item[name] = value
    elif kind not in old:
        raise InvalidExpression("An operand in the update expression has an incorrect data type")
    elif kind == "N":
        item[name] = _sum(old, value, "+")
    else:
        item[name] = {kind: sorted({*old[kind], *content})}


def delete_from(item: Item, name: str, value: Value) -> None:
    """``DELETE``: elements from a set; an emptied set is removed."""
    ((kind, content),) = value.items()
    if kind not in SETS:
        raise InvalidExpression("Incorrect operand type for DELETE")
    old = item.get(name)
    if old is None:
        return
    if kind not in old:
        raise InvalidExpression("An operand in the update expression has an incorrect data type")
    rest = [entry for entry in old[kind] if entry not in content]
    if rest:
        item[name] = {kind: rest}
    else:
        del item[name]


@lru_cache(maxsize=512)
def _parsed_condition(text: str) -> tuple[Condition, frozenset[str]]:
    parser = _Parser(text)
    condition = parser.condition()
    parser.end()
    return condition, frozenset(parser.references)


@lru_cache(maxsize=512)
def _parsed_update(text: str) -> tuple[list[tuple[str, Action]], frozenset[str]]:
    parser = _Parser(text)
    actions = parser.update()
    parser.end()
    return actions, frozenset(parser.references)


def holds(text: str, item: Item, scope: Scope) -> bool:
    """Whether a condition holds for an item (``{}`` for one that does not exist)."""
    condition, references = _parsed_condition(text)
    scope.used |= references
    return condition(item, scope)


def check_condition(text: str, scope: Scope) -> None:
    """Parse a condition and note what it refers to, without an item."""
    scope.used |= _parsed_condition(text)[1]


def check_update(text: str, scope: Scope) -> None:
    """Parse an update and note what it refers to, without an item."""
    scope.used |= _parsed_update(text)[1]


def updated(text: str, item: Item, scope: Scope) -> tuple[Item, list[str]]:
    """The item after an update expression, and the attributes that it names.

    All values are read from the item as it was before.
    """
    actions, references = _parsed_update(text)
    scope.used |= references
    names = [scope.name(path) for path, _action in actions]
    if len(set(names)) != len(names):
        raise InvalidExpression("Two document paths overlap with each other")
    new = dict(item)
    for _path, action in actions:
        action(item, new, scope)
    return new, names
