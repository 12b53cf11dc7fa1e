"""Kinds of random scheduling rounds, by scheduler, and the version of Storm that answers each."""

from collections.abc import Mapping
from random import Random
from typing import Any

from storm_1_1_rounds import resource_aware_1_1
from storm_round import StormRound
from storm_rounds import STRATEGIES, default, even, isolation, multitenant, resource_aware

KINDS: Mapping[str, Any] = {
    "even": even,
    "default": default,
    "isolation": isolation,
    "multitenant": multitenant,
    **{f"resource-aware {name}": (lambda draw, name=name: resource_aware(draw, name)) for name in STRATEGIES},
    "resource-aware 1.1": resource_aware_1_1,
}
"""Scheduler, with its strategy or engine -> generator of random rounds."""


def round_of(kind: str, seed: int) -> StormRound:
    """Return round number `seed` of a scheduler: the same one on every machine."""
    made: StormRound = KINDS[kind](Random(f"{kind} {seed}"))  # noqa: S311 # the same draw everywhere, not a secret
    return made
