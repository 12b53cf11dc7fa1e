"""Assignment of keys to executors: the same in every process, on every machine, in every version of Python.

A key is the tuple of the fields named by a fields grouping. Its group is the CRC-32 of its codec bytes
(MessagePack of the tuple) modulo 1024, and executor i of n owns the groups with `group * n // 1024 == i`: the group
is the unit of keyed state, so that state can be redistributed when n changes.

Keys that are equal in Python have equal bytes here (1, 1.0 and True; `bytes` and a view of them), because they are also
one key in the dict of a counting bolt.
"""

from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec

Key = tuple[Any, ...]

KEY_GROUPS = 1024

MOST_CACHED = 1 << 17
"""Maximum number of keys cached by a router; then the cache is cleared, which costs one miss per key."""

_encode = msgspec.msgpack.Encoder().encode


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


def executor_of(group: int, parallelism: int) -> int:
    """Return index of the executor, among `parallelism`, that owns `group`."""
    return group * parallelism // KEY_GROUPS


class KeyRouter:
    """Cached mapping from keys to executors.

    `route(key)` is a lookup without a Python frame for a key that was seen before; `map(router.route, keys)` is the
    quick way to route a batch. `route_value(field)` is quicker yet, for a key of one field without its tuple.

    >>> router = KeyRouter(12)
    >>> [router.route(("whale",)), router(("ship",)), router.route_value("ship")]
    [5, 3, 3]
    """

    route: Callable[[Key], int]
    route_value: Callable[[Any], int]

    def __init__(self, parallelism: int) -> None:
        if parallelism < 1:
            raise ValueError(f"parallelism is {parallelism}, it must be at least 1")
        self.route = _Cache(parallelism).__getitem__
        self.route_value = _ValueCache(parallelism).__getitem__

    def __call__(self, key: Key) -> int:
        """Return index of the executor that `key` belongs to."""
        return self.route(key)


class _Cache(dict[Key, int]):
    """Key -> executor; computes missing entries, and is cleared when full."""

    def __init__(self, parallelism: int) -> None:
        super().__init__()
        self._parallelism = parallelism

    def __missing__(self, key: Key) -> int:
        if len(self) >= MOST_CACHED:
            self.clear()
        # The canonical key is equal to `key`, but never keeps a received frame alive through a view into it.
        kept = tuple(map(_canonical, key))
        executor = self[kept] = executor_of(key_group(kept), self._parallelism)
        return executor


class _ValueCache(dict[Any, int]):
    """Cache for keys of one field, by that field."""

    def __init__(self, parallelism: int) -> None:
        super().__init__()
        self._parallelism = parallelism

    def __missing__(self, value: Any) -> int:
        if len(self) >= MOST_CACHED:
            self.clear()
        kept = _canonical(value)
        executor = self[kept] = executor_of(key_group((kept,)), self._parallelism)
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
