"""From a decoded JSON object to the message that it is."""

from amazon_kclpy import messages


class MalformedAction(Exception):
    """The daemon sent something that is no message."""


_MESSAGES = {
    "initialize": messages.InitializeInput,
    "processRecords": messages.ProcessRecordsInput,
    "shutdown": messages.ShutdownInput,
    "checkpoint": messages.CheckpointInput,
    "record": messages.Record,
    "shutdownRequested": messages.ShutdownRequestedInput,
    "leaseLost": messages.LeaseLostInput,
    "shardEnded": messages.ShardEndedInput,
}


def message_decode(json_dict):
    """The message of one JSON object; used as ``object_hook``, so for nested objects, too.

    Raises:
        MalformedAction: the object has no ``action``, or an unknown one.
        KeyError: a field is missing.
    """
    try:
        action = json_dict["action"]
    except KeyError:
        raise MalformedAction("A message has no 'action': %s" % (json_dict,))
    try:
        message = _MESSAGES[action]
    except KeyError:
        known = ", ".join(_MESSAGES)
        raise MalformedAction("A message has the unknown action %r; known: %s" % (action, known))
    return message(json_dict)
