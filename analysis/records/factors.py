"""Factors of runs: values of an agenda's factors as text, in labels, and in the entries of an agenda."""

import copy
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

Factors = Mapping[str, Any]
"""Factor -> value; keys as in the agenda, such as `nodes` or `workloads.wordcount.params.parallelism.count`."""

INVENTORY = "inventory"
"""The factor whose values are inventories."""


def inventory_of(factors: Factors) -> str:
    """Return the inventory of runs at a combination of factors; empty if the inventory is no factor.

    >>> inventory_of({"inventory": "hom.yml", "nodes": 4}), inventory_of({"nodes": 4})
    ('hom.yml', '')
    """
    return value_text(factors.get(INVENTORY, ""))


def value_text(value: Any) -> str:
    """Return a factor's value as text.

    >>> value_text("fast"), value_text(0.5), value_text([1, {"a": True}])
    ('fast', '0.5', '[1, {"a": true}]')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def factors_text(factors: Factors) -> str:
    """Return a combination of factors as text, with the shortest names that differ; empty without factors.

    >>> factors_text({"nodes": 4, "workloads.a.params.parallelism.count": 8})
    'nodes=4, count=8'
    >>> factors_text({"workloads.a.params.size": 1, "workloads.b.params.size": 2})
    'a.params.size=1, b.params.size=2'
    """
    names = short_names(list(factors))
    return ", ".join(f"{names[key]}={value_text(value)}" for key, value in factors.items())


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return key -> its last steps, as many as distinguish it from all other keys."""
    steps = {key: key.split(".") for key in keys}
    names = {}
    for key, mine in steps.items():
        count = 1
        while any(mine[-count:] == each[-count:] for other, each in steps.items() if other != key):
            count += 1
        names[key] = ".".join(mine[-count:])
    return names


def entry_at(entry: Mapping[str, Any], entries: str, factors: Factors) -> Mapping[str, Any]:
    """Return an entry of `workloads` or `schedulers` of an agenda with the values of a run's factors.

    >>> entry_at({"name": "a", "rate": {"tuples_per_s": 5}}, "workloads", {"workloads.a.rate.tuples_per_s": 7})
    {'name': 'a', 'rate': {'tuples_per_s': 7}}
    """
    changed = copy.deepcopy(dict(entry))
    prefix = f"{entries}.{entry.get('label') or entry.get('name')}."
    for key, value in factors.items():
        if key.startswith(prefix):
            with suppress(ValueError):
                put(changed, key.removeprefix(prefix).split("."), value)
    return changed


def put(entry: dict[str, Any], path: Sequence[str], value: Any) -> list[str | int]:
    """Replace the value at `path` of an entry, or add it; return the steps, with positions in lists as numbers.

    Raises:
        ValueError: the path leads into a value without keys, or beyond the end of a list.
    """
    steps: list[str | int] = []
    inside: Any = entry
    for depth, step in enumerate(path):
        key: str | int = step
        if isinstance(inside, list):
            if not step.isdecimal() or int(step) >= len(inside):
                raise ValueError(f"leads to {step!r} of a list of {len(inside)}")
            key = int(step)
        elif not isinstance(inside, dict):
            raise ValueError(f"leads to {step!r} of {value_text(inside)}, which has no keys")
        steps.append(key)
        if depth == len(path) - 1:
            inside[key] = value
        elif isinstance(inside, dict) and inside.get(key) is None:
            inside[key] = {}
        inside = inside[key]
    return steps
