"""State by key: a mapping that an operator uses, and that the runtime snapshots, divides, moves and merges.

    class Count(Bolt):
        counts = KeyedState(int)

        def process(self, batch):
            for (word,) in batch.rows:
                self.counts[word] += 1

A key of the state is the key of the input's fields grouping: its value, or the tuple of its values if it has several
fields. A longer tuple that begins with that key belongs to it, too, such as a word and the window in which it is
counted. So the runtime knows which executor owns a key, without a method of the operator.

Changes are tracked only while the state is copied ahead of a move. The table changes its class for that time: otherwise
all its methods are those of `dict`, at their speed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_origin, overload

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

V = TypeVar("V")

_IMMUTABLE = {int, float, str, bytes, bool, tuple, frozenset}
_MISSING: Any = object()


class KeyedState(Generic[V]):
    """Declaration of state by key, as an attribute of an operator's class; each operator has a `Table` of its own.

    A missing key has the value that `kind()` returns, such as 0 or an empty list; it becomes part of the state when it
    is assigned, or when it is read if it can be changed in place. Such a value must be read from the table whenever it
    is changed, so that the change is noticed.

    >>> from workloads.operators import Operator
    >>> class Visits(Operator):
    ...     pages = KeyedState(list[str])
    >>> visits = Visits()
    >>> visits.pages["ann"].append("home")
    >>> visits.pages
    {'ann': ['home']}
    """

    def __init__(self, kind: type[V], merge: Callable[[V, V], V] | None = None, most_bytes: int | None = None) -> None:
        """Declare it.

        Args:
            kind: type of the values, whatever msgspec can encode, such as `int`, `list[float]` or a `Struct`.
            merge: merges the values that two executors have for a key, in either order. With it in all state of an
                operator, keys need not be those of a grouping, and executors of any grouping can get another number;
                without it, only those of a fields grouping, which share no key.
            most_bytes: limit of an executor's encoded state; beyond it the run fails at the next snapshot.

        Raises:
            TypeError: values of this type cannot be decoded.
        """
        self.kind, self.merge, self.most_bytes = kind, merge, most_bytes
        self.make: Callable[[], V] = get_origin(kind) or kind
        self.decoder = msgspec.msgpack.Decoder(dict[Any, kind])  # type: ignore[valid-type]  # a type at run time
        self.is_mutable = self.make not in _IMMUTABLE

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, operator: None, owner: type) -> "KeyedState[V]": ...

    @overload
    def __get__(self, operator: Any, owner: type) -> "Table[V]": ...

    def __get__(self, operator: Any, owner: type) -> "KeyedState[V] | Table[V]":
        if operator is None:
            return self
        # From now on the attribute is found in the operator itself, without this call.
        table = operator.__dict__[self.name] = Table(self)
        return table


class Table(dict[Any, V]):
    """The state of one operator: a dict, with methods for whole batches.

    Attributes:
        declared: its declaration.
    """

    __slots__ = ("_changed", "_held", "declared")

    def __init__(self, declared: KeyedState[V]) -> None:
        super().__init__()
        self.declared = declared
        self._changed: set[Any] = set()
        self._held: Any = None

    def __missing__(self, key: Any) -> V:
        try:
            value = self.declared.make()
        except TypeError:
            raise KeyError(key) from None
        if self.declared.is_mutable:
            self[key] = value
        return value

    def add(self, keys: "Iterable[Any] | pa.Array", numbers: "pa.Array | None" = None) -> None:
        """Count keys: add 1 to the value of each, or a number.

        Args:
            keys: any number of keys, some perhaps repeatedly; as a column (`pyarrow.Array`), no Python runs per row.
            numbers: with a column of keys only: a column of numbers, positive if they are whole; None: 1 each.
        """
        if hasattr(keys, "buffers"):
            self._add_columns(keys, numbers)
        else:
            # Counts any iterable that is no mapping, in C if the methods are those of dict.
            Counter.update(cast("Counter[Any]", self), iter(keys))

    def add_all(self, rows: Iterable[tuple[Any, Any]]) -> None:
        """Add to the value of each key, given rows of a key and a number."""
        get, zero = cast("Callable[[Any, Any], Any]", self.get), self.declared.make()
        for key, number in rows:
            self[key] = get(key, zero) + number

    def _add_columns(self, keys: "pa.Array", numbers: "pa.Array | None") -> None:
        if numbers is not None and self.declared.make is not int:
            import numpy as np

            self.fold(keys, numbers, np.add)
            return
        tally = self._held
        if tally is None:
            from workloads.dictionaries import Tally

            tally = self._held = Tally()
            self.__class__ = _Holding
        self.add_all(tally.add(keys, None if numbers is None else numbers.to_numpy()))
        if tally.is_full:
            self.release()

    def fold(self, keys: "pa.Array", numbers: "pa.Array", function: "np.ufunc") -> None:
        """Combine a column of numbers with the values of a column of keys, such as by `numpy.maximum`.

        Numbers of equal keys are combined first, in their order, and then once with the value. A key without a value
        gets what its numbers make.
        """
        import numpy as np

        from workloads.arrays import distinct

        codes, distinct_keys = distinct(keys)
        if not len(codes):
            return
        given = numbers.to_numpy()
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        folded = function.reduceat(given[order], starts).tolist()
        known = self.get
        for key, number in zip(distinct_keys.take(_array(codes[order][starts])).to_pylist(), folded, strict=True):
            before = known(key, _MISSING)
            self[key] = number if before is _MISSING else function(before, number).item()

    def release(self) -> None:
        """Enter numbers that are still held for columns; every access does it."""
        held, self._held = self._held, None
        if self.__class__ is _Holding:
            self.__class__ = Table  # type: ignore[assignment]
        if held is not None:
            self.add_all(held.drain())

    def track(self, changed: set[Any] | None) -> None:
        """Add every key that is created, changed or deleted to `changed` from now on; None: to nothing."""
        self.release()
        self._changed = set() if changed is None else changed
        tracked = _TrackedInPlace if self.declared.is_mutable else _Tracked
        self.__class__ = Table if changed is None else tracked


def _array(values: Any) -> "pa.Array":
    import pyarrow as pa

    return pa.array(values)


class _Tracked(Table[V]):
    """A table that notes changed keys, of values that cannot be changed in place."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: V) -> None:
        self._changed.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        self._changed.add(key)
        super().__delitem__(key)

    def __ior__(self, other: Any) -> "_Tracked[V]":  # type: ignore[override,misc]  # as dict's
        self.update(other)
        return self

    def pop(self, key: Any, *default: Any) -> Any:
        self._changed.add(key)
        return super().pop(key, *default)

    def popitem(self) -> tuple[Any, V]:
        key, value = super().popitem()
        self._changed.add(key)
        return key, value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        self._changed.add(key)
        return super().setdefault(key, default)

    def update(self, *others: Any, **more: Any) -> None:
        entries = dict(*others, **more)
        self._changed.update(entries)
        super().update(entries)

    def clear(self) -> None:
        self._changed.update(self)
        super().clear()

    def add(self, keys: "Iterable[Any] | pa.Array", numbers: "pa.Array | None" = None) -> None:
        if hasattr(keys, "buffers"):
            self._changed.update(_used(keys))
        else:
            keys = list(keys)
            self._changed.update(keys)
        with self._untracked():
            self.add(keys, numbers)

    def add_all(self, rows: Iterable[tuple[Any, Any]]) -> None:
        rows = list(rows)
        self._changed.update([key for key, _ in rows])
        with self._untracked():
            self.add_all(rows)

    @contextmanager
    def _untracked(self) -> Iterator[None]:
        """Make the methods those of an untracked table, for their speed."""
        kind, self.__class__ = self.__class__, Table  # type: ignore[assignment]
        try:
            yield
            self.release()
        finally:
            self.__class__ = kind


def _used(column: "pa.Array") -> Iterable[Any]:
    """Return the values of a column, each at least once."""
    return cast("Iterable[Any]", (column.unique() if hasattr(column, "dictionary") else column).to_pylist())


class _TrackedInPlace(_Tracked[V]):
    """A table whose values can be changed in place: a key is noted whenever its value is read."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> V:
        self._changed.add(key)
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self._changed.add(key)
        return super().get(key, default)

    def values(self) -> Any:
        self._changed.update(self)
        return super().values()

    def items(self) -> Any:
        self._changed.update(self)
        return super().items()


class _Holding(Table[V]):
    """A table with numbers of columns that are not entered yet: every other access enters them first."""

    __slots__ = ()

    def add(self, keys: "Iterable[Any] | pa.Array", numbers: "pa.Array | None" = None) -> None:
        if hasattr(keys, "buffers"):
            self._add_columns(keys, numbers)
            return
        # Numbers can be added to values while others are held for them.
        self.__class__ = Table  # type: ignore[assignment]
        try:
            self.add(keys)
        finally:
            self.__class__ = _Holding

    def add_all(self, rows: Iterable[tuple[Any, Any]]) -> None:
        get, put, zero = super().get, super().__setitem__, cast("Any", self.declared.make())
        for key, number in rows:
            put(key, get(key, zero) + number)


def _releasing(name: str) -> Callable[..., Any]:
    def method(self: Table[Any], *args: Any, **more: Any) -> Any:
        self.release()
        return getattr(self, name)(*args, **more)

    method.__name__ = name
    return method


for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__", "__or__"),
    *("__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy", "fold", "get", "items", "keys", "pop"),
    *("popitem", "setdefault", "update", "values"),
):
    setattr(_Holding, _name, _releasing(_name))
