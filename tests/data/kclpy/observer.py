"""Tells all that a program can see of messages: ``observer.py load FILE`` or ``observer.py run``.

``load`` decodes each line of a file, as bytes and as text, and prints one JSON line for each.
``run`` is a program on stdin that tells its processor's messages on stderr.
"""

import copy
import json
import pickle
import sys
import weakref

from amazon_kclpy import dispatch, kcl, messages
from amazon_kclpy.v3 import processor

FIELDS = ("data", "partitionKey", "action", "extra", "schemaName", 7, ["no key"])


def seen(action):
    """The result of a call, or its exception, as text."""
    try:
        result = action()
    except dispatch.MalformedAction:
        return "MalformedAction"
    except Exception as error:  # noqa: BLE001 - what it raises is told
        return f"{type(error).__module__}.{type(error).__qualname__}{error.args!r:.300}"
    return described(result)


def described(value):
    """A value as text; of what the library made, all that is public."""
    if isinstance(value, list):
        return [described(one) for one in value]
    if not type(value).__module__.startswith("amazon_kclpy"):
        return f"{type(value).__name__} {value!r}"
    names = [name for name in dir(value) if not name.startswith("_")]
    found = {
        name: seen(lambda name=name: getattr(value, name))
        for name in names
        if not callable(getattr(type(value), name))
    }
    found["class"] = f"{type(value).__module__}.{type(value).__qualname__}"
    found["methods"] = [name for name in names if callable(getattr(type(value), name))]
    if isinstance(value, messages.Record):
        found |= fields(value)
    return found | behaviour(value)


def fields(record):
    return {
        "get": [seen(lambda name=name: record.get(name)) for name in FIELDS],
        "item": [seen(lambda name=name: record[name]) for name in FIELDS],
        "missing": seen(record.get),
    }


def behaviour(value):
    """What an object of a plain class does."""
    told = {}
    told["repr"] = repr(value).partition(" at ")[0]
    told["set"] = {
        name: seen(lambda name=name: setattr(value, name, "new"))
        for name in dir(type(value))
        if not name.startswith("_") and isinstance(getattr(type(value), name), property)
    }
    value.own = "kept"
    told["own"] = vars(value)["own"]
    told["found"] = {value: 1}.get(value), {value: 1}.get(copy.copy(value))
    told["order"] = seen(lambda: sorted([value, value])).partition(" ")[0]
    told["referred"] = weakref.ref(value)() is value
    told["deleted"] = seen(lambda: delattr(value, "own"))
    told["len"] = seen(lambda: len(value)).partition("(")[0]
    told["copies"] = [
        seen(lambda copied=copied: shallow(copied(value)))
        for copied in (copy.copy, copy.deepcopy, *map(pickled, range(pickle.HIGHEST_PROTOCOL + 1)))
    ]
    return told


def pickled(protocol):
    return lambda value: pickle.loads(pickle.dumps(value, protocol))


def shallow(value):
    names = [name for name in dir(value) if not name.startswith("_")]
    return str([(name, repr(getattr(value, name)).partition(" at ")[0]) for name in names])


def load(file):
    handler = kcl.KCLProcess(processor.RecordProcessorBase()).io_handler
    with open(file, "rb") as lines:
        for line in lines:
            told = [seen(lambda line=line: handler.load_action(line))]
            try:
                text = line.decode()
            except UnicodeDecodeError:
                pass
            else:
                told.append(seen(lambda text=text: handler.load_action(text)))
                told.append(seen(lambda text=text: hooked(text)))
            print(json.dumps(told))


def hooked(text):
    return json.loads(text, object_hook=dispatch.message_decode)


class Observer(processor.RecordProcessorBase):
    """Tells what it gets; checkpoints at the last record that is a multiple of three, or at all."""

    def tell(self, what, message):
        print(what, json.dumps(described(message)), file=sys.stderr, flush=True)

    def initialize(self, message):
        self.tell("initialize", message)

    def process_records(self, message):
        checkpointer = message.checkpointer
        self.tell("process_records", message.records)
        for record in message.records[::3]:
            self.checkpoint(checkpointer, record.sequence_number, record.sub_sequence_number)
        self.checkpoint(checkpointer)

    def checkpoint(self, checkpointer, *position):
        try:
            checkpointer.checkpoint(*position)
        except kcl.CheckpointError as error:
            self.tell("refused", [error.value, str(error), repr(error.args)])

    def lease_lost(self, message):
        self.tell("lease_lost", message)

    def shard_ended(self, message):
        self.tell("shard_ended", message.action)
        message.checkpointer.checkpoint()

    def shutdown_requested(self, message):
        self.tell("shutdown_requested", message.action)
        self.checkpoint(message.checkpointer)


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(sys.argv[2])
    else:
        kcl.KCLProcess(Observer()).run()
