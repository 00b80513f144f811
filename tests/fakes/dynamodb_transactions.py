"""Writes that happen together or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.errors import ConditionFailed, ServiceError, TransactionCanceled
from tests.fakes.dynamodb_requests import only
from tests.fakes.dynamodb_writes import check_effect, delete_effect, put_effect, update_effect
from tests.fakes.items import InvalidValue

if TYPE_CHECKING:
    from tests.fakes.dynamodb_model import DynamoDbModel
    from tests.fakes.dynamodb_writes import Effect

_OPERATION = "TransactWriteItems"
_EFFECTS = {
    "ConditionCheck": check_effect,
    "Delete": delete_effect,
    "Put": put_effect,
    "Update": update_effect,
}
_MOST_ACTIONS = 100
#: For so long a token stands for its request.
TOKEN_S = 600.0


def transact_write_items(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    only(request, "TransactItems", "ClientRequestToken")
    actions = request["TransactItems"]
    if not 1 <= len(actions) <= _MOST_ACTIONS:
        raise InvalidValue("Member must have length less than or equal to 100, and at least 1")
    token = request.get("ClientRequestToken")
    if token is not None and _was_done(model, token, actions):
        return {}
    effects = _effects(model, actions)
    places = [(effect.table.name, effect.key) for _, _, effect in effects]
    if len(set(places)) != len(places):
        raise InvalidValue("Transaction request cannot include multiple operations on one item")
    for kind, part, effect in effects:
        if kind != "ConditionCheck" and effect.new is not effect.old:
            model.store(_OPERATION, effect.table, effect.key, effect.new, part)
    if token is not None:
        model.tokens[token] = (model.now(), actions)
    return {}


def _effects(
    model: DynamoDbModel, actions: list[dict[str, Any]]
) -> list[tuple[str, dict[str, Any], Effect]]:
    """What each would do, once all conditions were found to hold."""
    effects: list[tuple[str, dict[str, Any], Effect]] = []
    reasons: list[str] = []
    for action in actions:
        ((kind, part),) = action.items()
        if kind == "ConditionCheck" and "ConditionExpression" not in part:
            raise InvalidValue("a ConditionCheck needs a ConditionExpression")
        try:
            effects.append((kind, part, _EFFECTS[kind](model, _OPERATION, part)))
            reasons.append("None")
        except ConditionFailed:
            reasons.append("ConditionalCheckFailed")
    if len(effects) < len(actions):
        raise TransactionCanceled(_OPERATION, f"Transaction cancelled: {reasons}", tuple(reasons))
    return effects


def _was_done(model: DynamoDbModel, token: str, actions: list[dict[str, Any]]) -> bool:
    done_at_s, done = model.tokens.get(token, (0.0, None))
    if done is None or model.now() - done_at_s > TOKEN_S:
        return False
    if done != actions:
        raise ServiceError(_OPERATION, "IdempotentParameterMismatchException", "another request")
    return True


TRANSACTIONS = {_OPERATION: transact_write_items}
