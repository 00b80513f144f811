"""How the records of a stream are spread over its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from mld.simulate.scenario import Load

if TYPE_CHECKING:
    import random

#: Of a hot stream: this share of its records goes to a tenth of its shards.
HOT_SHARE = 0.8


def shares(load: Load, shards: int, rng: random.Random) -> list[float]:
    """The share of all records that each shard gets.

    Args:
        load: the kind of spread. Zipf's law has exponent 1, with the ranks shuffled over the shards.
        shards: how many.
        rng: draws.

    Returns:
        As many numbers > 0; their sum is 1.
    """
    weights = _weights(load, shards, rng)
    total = sum(weights)
    return [weight / total for weight in weights]


def _weights(load: Load, shards: int, rng: random.Random) -> list[float]:
    match load:
        case Load.EVEN:
            return [1.0] * shards
        case Load.ZIPF:
            return rng.sample([1 / rank for rank in range(1, shards + 1)], shards)
        case Load.RANDOM:
            return [rng.uniform(0.5, 1.5) for _ in range(shards)]
        case Load.HOT:
            hot = max(1, shards // 10)
            cold = max(1, shards - hot)
            weights = [HOT_SHARE / hot] * hot + [(1 - HOT_SHARE) / cold] * (shards - hot)
            return rng.sample(weights, shards)
        case _:  # pragma: no cover
            assert_never(load)
