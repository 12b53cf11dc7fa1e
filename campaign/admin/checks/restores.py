"""Restores of operators: state divided among several at random and added up again, and comparison of emitted rows.

The executors that restore a state need not be as many as those that had it, so parts of it are restored one by one.

Operators emit rows for the same input with and without a restore. Some columns may differ: the answer of a query may
contain processing times, which operators read from a clock. A column in which two instances differ without any restore
is free: it is left out of all comparisons.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from zlib import crc32

from workloads.key_groups import KEY_GROUPS, codec_bytes, first_owners
from workloads.operator_state import OperatorState
from workloads.operators import Bolt, Operator, Row
from workloads.scaling import key_fields
from workloads.topology import Component

MOST_SHARES = 3
"""Most operators among which a state is divided."""


def divided(
    operator: Operator, component: Component, index: int, opened: Callable[[], Operator], random: Random
) -> Operator:
    """Return a new operator with the state of `operator`, which has meanwhile been divided among several.

    Args:
        operator: whose state it is.
        component: its component.
        index: that of its executor, which owns the key groups of its keys.
        opened: returns a new operator of the same executor.
        random: decides which operator gets which key group.

    Raises:
        RunError: it has a key of another executor.
    """
    owned = {group for group, at in enumerate(first_owners(component.parallelism)) if at == index}
    shares = 1 + random.randrange(MOST_SHARES)
    owner = [random.randrange(shares) for _ in range(KEY_GROUPS)]
    whole, again = OperatorState(operator).snapshot(), OperatorState(opened())
    for share in range(shares):
        part = OperatorState(opened())
        mine = {group for group in owned if owner[group] == share}
        part.put_groups(whole, mine, key_fields(component), owned)
        part.loaded()
        again.put(part.snapshot())
        part.operator.close()
    again.loaded()
    return again.operator


def merged_operator(states: Iterable[bytes], opened: Callable[[], Operator]) -> Operator:
    """Return a new operator into which the given states are merged."""
    again = OperatorState(opened())
    for state in states:
        again.put(state, merge=True)
    again.loaded()
    return again.operator


def merges_in_any_order(one: bytes, other: bytes, opened: Callable[[], Operator]) -> bool:
    """Return whether two states of a sink give the same answer, whichever of them is merged into the other."""
    answers = []
    for states in ((one, other), (other, one)):
        operator = merged_operator(states, opened)
        tables = operator.tables() if isinstance(operator, Bolt) else ()
        rows = [(each.answer_table, row) for each in tables for row in (*each.settled(), *each.answer())]
        answers.append(sorted((table, codec_bytes(row)) for table, row in rows))
        operator.close()
    return answers[0] == answers[1]


Rows = Mapping[str, Sequence[Row]]
"""Stream or table of the answer -> rows."""


class Emissions:
    """Rows emitted so far, by component and stream."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, str], set[int]] = {}
        self._sums: Counter[tuple[str, str, int]] = Counter()

    def add(self, component: str, rows: Rows) -> None:
        """Add the rows that an operator has emitted."""
        for stream, each in rows.items():
            for row in each:
                for column, value in enumerate(row):
                    self._sums[component, stream, column] += crc32(codec_bytes((value,)))

    def differences(self, component: str, one: Rows, other: Rows) -> str:
        """Find free columns of two instances without a restore; return any other difference, or an empty string."""
        for stream in sorted({*one, *other}):
            mine, theirs = one.get(stream, ()), other.get(stream, ())
            if len(mine) != len(theirs):
                return f"{len(mine)} and {len(theirs)} rows of {stream!r}"
            if self._lack(component, stream, mine, theirs) == (0, 0):
                continue
            free = self._free.setdefault((component, stream), set())
            for row, again in zip(mine, theirs, strict=True):
                if len(row) != len(again):
                    return f"rows of {stream!r} with {len(row)} and {len(again)} fields"
                free.update(at for at, (a, b) in enumerate(zip(row, again, strict=True)) if a != b)
        return ""

    def lost(self, component: str, one: Rows, restored: Rows) -> str:
        """Return how the rows of a restored instance differ, in any order, or an empty string."""
        for stream in sorted({*one, *restored}):
            lacks, has = self._lack(component, stream, one.get(stream, ()), restored.get(stream, ()))
            if lacks or has:
                return f"{stream!r} lacks {lacks} rows that are emitted without a restore, and has {has} other rows"
        return ""

    def columns(self) -> dict[tuple[str, str, int], int]:
        """Return (component, stream, column) -> a checksum of all values in any order, without free columns."""
        return {key: total for key, total in sorted(self._sums.items()) if key[2] not in self._free_of(*key[:2])}

    @property
    def free(self) -> Sequence[tuple[str, str, int]]:
        """Free columns."""
        return sorted((*key, column) for key, columns in self._free.items() for column in columns)

    def _free_of(self, component: str, stream: str) -> set[int]:
        return self._free.get((component, stream), set())

    def _lack(self, component: str, stream: str, one: Sequence[Row], other: Sequence[Row]) -> tuple[int, int]:
        """Return how many rows of each are missing in the other."""
        free = self._free_of(component, stream)
        first, second = (
            Counter(codec_bytes(tuple(v for at, v in enumerate(row) if at not in free)) for row in rows)
            for rows in (one, other)
        )
        return (first - second).total(), (second - first).total()
