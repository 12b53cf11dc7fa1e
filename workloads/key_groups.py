"""Assignment of keys to executors: the same in every process, on every machine, in every version of Python.

A key is the tuple of the fields named by a fields grouping. Its group is the CRC-32 of its codec bytes
(MessagePack of the tuple) modulo 1024. A table holds the owner of each group, the index of one of the component's
executors: the group is the unit of keyed state, so that state can be redistributed when their number changes.

Keys that are equal in Python have equal bytes here (1, 1.0 and True; `bytes` and a view of them), because they are also
one key in the dict of a counting bolt.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, groupby, repeat
from typing import Annotated, Any
from zlib import crc32

import msgspec
from msgspec import Meta

Key = tuple[Any, ...]

KEY_GROUPS = 1024

Owners = tuple[int, ...]
"""Owner of each key group: the index of one of a component's executors."""

OwnerRuns = Annotated[
    tuple[tuple[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=1, le=KEY_GROUPS)]], ...],
    Meta(max_length=KEY_GROUPS),
]
"""The same in short: owners, each with the number of consecutive groups that it owns."""

MOST_CACHED = 1 << 17
"""Maximum number of keys cached by a router; then the cache is cleared, which costs one miss per key."""

_encode = msgspec.msgpack.Encoder().encode

_CANONICAL = {str, int, bytes, type(None)}
"""Types of values that are the same in a canonical key."""


def codec_bytes(key: Key) -> bytes:
    """Return messagePack of `key` (or of any row), the same for all keys that are equal.

    Raises:
        TypeError: a field is none of int, float, str, bytes, bool or None.
        OverflowError: an int outside -2**63 .. 2**64 - 1.
    """
    return _encode(tuple(map(_canonical, key)))


def key_group(key: Key) -> int:
    """Return the group of `key`, 0..1023; raises what `codec_bytes` raises."""
    return crc32(codec_bytes(key)) % KEY_GROUPS


def owned_groups(executor: int, parallelism: int) -> int:
    """Return the number of groups that one of `parallelism` executors owns: lower indexes own one more.

    >>> [owned_groups(executor, 5) for executor in range(5)]
    [205, 205, 205, 205, 204]
    """
    least, larger = divmod(KEY_GROUPS, parallelism)
    return least + (executor < larger)


def first_owners(parallelism: int) -> Owners:
    """Return the owners of a component that has always had `parallelism` executors: consecutive groups for each."""
    if parallelism < 1:
        raise ValueError(f"parallelism is {parallelism}, it must be at least 1")
    return owners_from_runs([(executor, owned_groups(executor, parallelism)) for executor in range(parallelism)])


def rebalanced(owners: Owners, parallelism: int) -> Owners:
    """Return the owners after a change to `parallelism` executors, with the fewest groups that change theirs.

    Each owner gives its highest groups beyond its share, a removed one all of them. In ascending order, these
    fill the executors that are below their share, in ascending order. So executors that were added and are removed
    again give each group back to the executor that it came from.

    >>> owner_runs(rebalanced(first_owners(2), 3))
    ((0, 342), (2, 170), (1, 341), (2, 171))
    """
    room = [owned_groups(executor, parallelism) for executor in range(parallelism)]
    after = [-1] * KEY_GROUPS
    for group, owner in enumerate(owners):
        if owner < parallelism and room[owner]:
            room[owner] -= 1
            after[group] = owner
    takers = chain.from_iterable([repeat(executor, count) for executor, count in enumerate(room)])
    return tuple([next(takers) if owner < 0 else owner for owner in after])


def first_ownership(keyed: Mapping[str, int]) -> dict[str, OwnerRuns]:
    """Return the first owners of components, given the parallelism of each.

    >>> first_ownership({"count": 3})
    {'count': ((0, 342), (1, 341), (2, 341))}
    """
    return {component: owner_runs(first_owners(parallelism)) for component, parallelism in keyed.items()}


def owner_runs(owners: Owners) -> OwnerRuns:
    """Return owners in short."""
    return tuple([(owner, len(list(run))) for owner, run in groupby(owners)])


def owners_from_runs(runs: Iterable[tuple[int, int]]) -> Owners:
    """Return the owners that `runs_of` has shortened."""
    return tuple(chain.from_iterable([repeat(owner, count) for owner, count in runs]))


def groups_of(keys: Iterable[Any], fields: int = 1) -> list[int]:
    """Return the group of each key of an operator's state.

    Args:
        keys: a key of one field may be its value instead of a tuple; a longer tuple belongs to its first fields.
        fields: number of fields of the grouping's key.

    >>> groups_of(["whale", ("ship",), ("ship", 3)])
    [499, 299, 299]
    """
    keys = list(keys)
    if any(issubclass(kind, tuple) for kind in set(map(type, keys))):
        full = [key[:fields] if isinstance(key, tuple) else (key,) for key in keys]
    else:
        full = list(zip(keys, strict=True))
    if not _CANONICAL.issuperset(map(type, chain.from_iterable(full))):
        full = [tuple(map(_canonical, key)) for key in full]
    # Without a Python frame per key: a state has millions of them.
    return [checksum % KEY_GROUPS for checksum in map(crc32, map(_encode, full))]


class KeyRouter:
    """Cached mapping from keys to the owners of their groups.

    `route(key)` is a lookup without a Python frame for a key that was seen before; `map(router.route, keys)` is the
    quick way to route a batch. `route_value(field)` is quicker yet, for a key of one field without its tuple.

    >>> router = KeyRouter(first_owners(12))
    >>> [router.route(("whale",)), router(("ship",)), router.route_value("ship")]
    [5, 3, 3]
    """

    route: Callable[[Key], int]
    route_value: Callable[[Any], int]

    def __init__(self, owners: Owners) -> None:
        self.route = _Cache(owners).__getitem__
        self.route_value = _ValueCache(owners).__getitem__

    def __call__(self, key: Key) -> int:
        """Return the index of the executor that `key` belongs to."""
        return self.route(key)


class _Cache(dict[Key, int]):
    """Key -> executor; computes missing entries, and is cleared when full."""

    def __init__(self, owners: Owners) -> None:
        super().__init__()
        self._owners = owners

    def __missing__(self, key: Key) -> int:
        if len(self) >= MOST_CACHED:
            self.clear()
        # The canonical key is equal to `key`, but never keeps a received frame alive through a view into it.
        kept = tuple(map(_canonical, key))
        executor = self[kept] = self._owners[key_group(kept)]
        return executor


class _ValueCache(dict[Any, int]):
    """Cache for keys of one field, by that field."""

    def __init__(self, owners: Owners) -> None:
        super().__init__()
        self._owners = owners

    def __missing__(self, value: Any) -> int:
        if len(self) >= MOST_CACHED:
            self.clear()
        kept = _canonical(value)
        executor = self[kept] = self._owners[key_group((kept,))]
        return executor


def _canonical(value: Any) -> Any:
    """Return one representative of all values equal to `value`."""
    kind = value.__class__
    if kind is str or kind is int or kind is bytes or value is None:
        return value
    if kind is float:
        return int(value) if value.is_integer() and -(2.0**63) <= value < 2.0**64 else value
    if kind is bool:
        return int(value)
    if kind is memoryview:
        return bytes(value)
    raise TypeError(f"a key's fields are int, float, str, bytes or bool, not {kind.__name__}")
