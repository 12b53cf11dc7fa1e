"""All state of an operator as the runtime handles it: as a whole, key by key, and by key groups.

As bytes, state is a MessagePack array: stream time, the result of the operator's `snapshot`, the values of keys, and
deleted keys.
"""

import sys
from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import repeat
from typing import Any

import msgspec

from inventory.errors import RunError
from workloads.key_groups import KEY_GROUPS, groups_of
from workloads.keyed_state import KeyedState, Table
from workloads.operators import Bolt, Operator

_MISSING: Any = object()

_encode = msgspec.msgpack.Encoder().encode


class _Encoded(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """State of an operator, or of some of its keys.

    Attributes:
        stream_ns: stream time of its last tick.
        own: result of its `snapshot`; None: not part of this.
        tables: values of keys, of each table, in the order of declarations.
        gone: by the place of a table, keys that have no value any more.
    """

    stream_ns: int
    own: bytes | None
    tables: list[msgspec.Raw]
    gone: dict[int, dict[Any, None]]


_decode = msgspec.msgpack.Decoder(_Encoded).decode


def declared_by(kind: type[Operator]) -> Mapping[str, KeyedState[Any]]:
    """Return the state by key that a class of operators declares, by name."""
    members = {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}
    return {name: member for name, member in members.items() if isinstance(member, KeyedState)}


def _encoded(
    stream_ns: int, own: bytes | None, tables: Mapping[str, Mapping[Any, Any]], gone: Mapping[int, Any]
) -> bytes:
    try:
        return _encode((stream_ns, own, list(tables.values()), gone))
    except (TypeError, OverflowError, ValueError) as fault:
        for name, entries in tables.items():
            for entry in entries.items():
                try:
                    _encode(entry)
                except (TypeError, OverflowError, ValueError) as reason:
                    raise RunError(f"state {name!r}, key {entry[0]!r}: {reason}") from fault
        raise


def _decoded(declared: KeyedState[Any], raw: msgspec.Raw) -> dict[Any, Any]:
    try:
        return declared.decoder.decode(raw)
    except msgspec.ValidationError as fault:
        raise RunError(f"state {declared.name!r} has other values than it declares: {fault}") from None


def foreign(key: object) -> RunError:
    """Return the error for a key of state that belongs to another executor."""
    return RunError(
        f"its state has the key {key!r}, which is another executor's: keys begin with those of the fields grouping, "
        "or the state declares how to `merge`"
    )


def _source_location(kind: type[Operator]) -> str:
    """Return file and line of an operator's `snapshot`; the file of its module if it is no plain function."""
    code = getattr(kind.snapshot, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    return str(getattr(sys.modules.get(kind.__module__), "__file__", kind.__module__))


class OperatorState:
    """All state of an operator, as the runtime handles it: its tables, and what its `snapshot` returns.

    Attributes:
        is_arranged: whether the operator keeps its keyed state in another form and stores it in the tables when the
            runtime needs it.
    """

    def __init__(self, operator: Operator) -> None:
        """Create it; `operator` may have been opened or not."""
        self.operator = operator
        kind = type(operator)
        self.is_arranged = kind.store_state is not Operator.store_state
        self._names = declared_by(kind)

    @property
    def tables(self) -> Mapping[str, Table[Any]]:
        """Tables by name.

        Raises:
            RunError: the operator has assigned another object.
        """
        tables = {name: getattr(self.operator, name) for name in self._names}
        for name, table in tables.items():
            if not isinstance(table, Table):
                kind = type(self.operator).__name__
                raise RunError(
                    f"{kind} assigned {type(table).__name__} to its state {name!r}, whose keys it may change"
                )
        return tables

    @property
    def is_by_key(self) -> bool:
        """Return whether all state is by key."""
        return bool(self._names) and type(self.operator).snapshot is Operator.snapshot

    @property
    def is_none(self) -> bool:
        """Return whether the operator has no state."""
        return not self._names and type(self.operator).snapshot is Operator.snapshot

    @property
    def merges(self) -> bool:
        """Return whether all state is by key, and executors may share keys."""
        return self.is_by_key and all(declared.merge is not None for declared in self._names.values())

    @property
    def can_be_copied(self) -> bool:
        """Return whether there is state that can be copied while the operator works."""
        return bool(self._names) and not self.is_arranged

    # --- as a whole ----------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Return all state.

        Raises:
            RunError: `snapshot` returned other than bytes, a value cannot be encoded, or there is too much state.
        """
        if not self._names:
            return self._own()
        if self.is_arranged:
            self.operator.store_state()
        for table in self.tables.values():
            table.release()
        state = _encoded(self.stream_ns, self._own(), self.tables, {})
        self._check_sizes()
        self._clear()
        return state

    def restore(self, state: bytes) -> None:
        """Replace all state by a result of `snapshot`; the operator has been opened."""
        if not self._names:
            self.operator.restore(state)
            return
        for table in self.tables.values():
            table.clear()
        self.put(state)
        self.loaded()

    def _own(self) -> bytes:
        state: object = self.operator.snapshot()
        if not isinstance(state, bytes):
            kind = type(self.operator)
            returned = f"snapshot() of {kind.__name__} returned {type(state).__name__}, expected bytes"
            raise RunError(f"{returned} ({_source_location(kind)})")
        return state

    # --- some of its keys ----------------------------------------------------------------------------------

    def all_keys(self) -> list[Hashable]:
        """Return the keys of all tables, each once."""
        if self.is_arranged:
            self.operator.store_state()
        tables = list(self.tables.values())
        return list(tables[0]) if len(tables) == 1 else list(set().union(*tables))

    def track(self, changed: set[Any] | None) -> None:
        """Add keys whose state changes to `changed` from now on; None: to nothing."""
        for table in self.tables.values():
            table.track(changed)

    def part(self, keys: Collection[Any], with_own: bool = False) -> bytes:
        """Return the state of keys, and that those have none any more that have none; on request the state by no key.

        Raises:
            RunError: as for `snapshot`.
        """
        parts, without = {}, {}
        for at, (name, table) in enumerate(self.tables.items()):
            table.release()
            # Reads neither create a missing value nor count as changes.
            values = list(map(dict.get, repeat(table), keys, repeat(_MISSING)))
            entries = dict(zip(keys, values, strict=True))
            gone: dict[Any, None] = {}
            if _MISSING in values:
                gone = {key: None for key, value in entries.items() if value is _MISSING}
                entries = {key: value for key, value in entries.items() if value is not _MISSING}
            parts[name] = entries
            if gone:
                without[at] = gone
        return _encoded(self.stream_ns, self._own() if with_own else None, parts, without)

    def put(self, state: bytes, merge: bool = False) -> None:
        """Replace the state of keys by a result of `part` or `snapshot`; `loaded` is called when all parts are put.

        Args:
            state: the state.
            merge: whether values are merged with those that keys have.
        """
        given = _decode(state)
        self._advance(given.stream_ns)
        for at, (table, raw) in enumerate(zip(self.tables.values(), given.tables, strict=True)):
            entries = _decoded(table.declared, raw)
            function = table.declared.merge
            if merge and function is not None:
                entries = {
                    key: function(table[key], value) if key in table else value for key, value in entries.items()
                }
            table.update(entries)
            for key in given.gone.get(at, ()):
                table.pop(key, None)
        if given.own is not None:
            self.operator.restore(given.own)

    def put_groups(
        self, state: bytes, groups: Collection[int], fields: int, owned: Collection[int] = range(KEY_GROUPS)
    ) -> None:
        """Add the keys of some groups from a result of `snapshot`.

        Args:
            state: of an executor.
            groups: to add.
            fields: number of fields of the grouping's key.
            owned: groups that the executor owned.

        Raises:
            RunError: the executor had a key of another group.
        """
        given = _decode(state)
        self._advance(given.stream_ns)
        for table, raw in zip(self.tables.values(), given.tables, strict=True):
            entries = _decoded(table.declared, raw)
            for (key, value), group in zip(entries.items(), groups_of(entries, fields), strict=True):
                if group in groups:
                    table[key] = value
                elif group not in owned:
                    raise foreign(key)

    def drop(self, keys: Iterable[Any]) -> None:
        """Delete the state of keys; some may have none."""
        keys = list(keys)
        for table in self.tables.values():
            table.release()
            delete = table.pop
            for key in keys:
                delete(key, None)

    def absorb(self, other: "OperatorState") -> None:
        """Add the tables of another operator of the component, which has other keys."""
        self._advance(other.stream_ns)
        for name, table in self.tables.items():
            table.update(other.tables[name])

    @property
    def stream_ns(self) -> int:
        """Stream time of the operator's last tick; at a barrier, all executors have had the same ticks."""
        return self.operator.stream_ns if isinstance(self.operator, Bolt) else 0

    def _advance(self, stream_ns: int) -> None:
        if isinstance(self.operator, Bolt) and stream_ns > self.operator.stream_ns:
            self.operator.stream_ns = stream_ns

    def loaded(self) -> None:
        """Have the operator take over what is in the tables now."""
        self.operator.load_state()
        self._clear()

    def _clear(self) -> None:
        if self.is_arranged:
            for table in self.tables.values():
                table.clear()

    def _check_sizes(self) -> None:
        for name, table in self.tables.items():
            most = table.declared.most_bytes
            if most is not None and (size := len(_encode(table))) > most:
                raise RunError(
                    f"state {name!r} has {size:,} bytes with {len(table):,} keys, more than its limit {most:,}"
                )
