"""State by key: a table is a dict in every mode, changes are noticed, and state can be copied, divided and merged."""

from collections import defaultdict
from collections.abc import Callable
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis_examples import times

from agents.worker.task_graph.state_copies import LeavingState
from inventory.errors import RunError
from workloads.dictionaries import DictionaryEncoder
from workloads.key_groups import KEY_GROUPS, groups_of
from workloads.keyed_state import KeyedState, Table
from workloads.operator_state import OperatorState
from workloads.operators import Bolt

KEYS = st.sampled_from("abcdefg")


class Counts(Bolt):
    numbers = KeyedState(int)


class Lists(Bolt):
    numbers = KeyedState(int)
    lists = KeyedState(list[int])


COLUMN = "column"
"""Text that comes by a growing dictionary, as between workers."""

Change = Callable[[Any, str, int], object]

CHANGES: dict[str, Change] = {
    "set": lambda table, key, number: table.__setitem__(key, number),
    "plus": lambda table, key, number: (
        table.__setitem__(key, table[key] + number)
        if not isinstance(table, dict) or key in table
        else table.__setitem__(key, number)
    ),
    "delete": lambda table, key, _: table.__delitem__(key) if key in table else None,
    "pop": lambda table, key, number: table.pop(key, number),
    "setdefault": lambda table, key, number: table.setdefault(key, number),
    "update": lambda table, key, number: table.update({key: number, "z": number}),
    "update pairs": lambda table, key, number: table.update([(key, number)]),
    "or": lambda table, key, number: table.__ior__({key: number}),
    "clear": lambda table, _key, _number: table.clear(),
}
READS: dict[str, Callable[[Any, str], object]] = {
    "get": lambda table, key: table.get(key),
    "in": lambda table, key: key in table,
    "len": lambda table, _: len(table),
    "list": lambda table, _: sorted(table),
    "items": lambda table, _: sorted(table.items()),
    "values": lambda table, _: sorted(table.values()),
    "keys": lambda table, _: sorted(table.keys()),
    "reversed": lambda table, _: len(list(reversed(table))),
    "copy": lambda table, _: table.copy(),
    "or": lambda table, key: table | {key: 1},
    "dict": lambda table, _: dict(table),
    "repr": lambda table, _: len(repr(table)),
    "equal": lambda table, _: table == {"a": 1},
    "bool": lambda table, _: bool(table),
}
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(CHANGES)), KEYS, st.integers(1, 9)),
        st.tuples(st.sampled_from(["count", "sum", COLUMN, "numbers"]), st.lists(KEYS, min_size=1, max_size=8)),
        st.tuples(st.sampled_from(sorted(READS)), KEYS),
        st.sampled_from(["track", "stop", "popitem"]),
    ),
    max_size=25,
)


@settings(max_examples=times(4))
@given(EVENTS)
def test_a_table_is_a_dict_whether_changes_are_tracked_or_columns_are_held(events: list[Any]) -> None:
    bolt, model, encoder = Counts(), dict[str, int](), DictionaryEncoder(pa.string())
    changed, before = set[str](), dict[str, int]()
    tracks = False
    for event in events:
        match event:
            case "popitem" if model:
                key, value = bolt.numbers.popitem()
                assert model.pop(key) == value
            case "popitem":
                assert not bolt.numbers
            case "track" | "stop":
                tracks, before = event == "track", dict(model)
                changed.clear()
                OperatorState(bolt).track(changed if tracks else None)
            case (str() as name, list() as keys):
                column = encoder.encode(pa.array(keys * 30, pa.string())) if name == COLUMN else pa.array(keys)
                columns = keys * 30 if name == COLUMN else keys
                for key in columns:
                    model[key] = model.get(key, 0) + (3 if name in ("sum", "numbers") else 1)
                match name:
                    case "count":
                        bolt.numbers.add(iter(keys))
                    case "sum":
                        bolt.numbers.add_all((key, 3) for key in keys)
                    case "numbers":
                        bolt.numbers.add(column, pa.array([3] * len(keys)))
                    case _:
                        bolt.numbers.add(pa.array(columns) if column is None else column)
            case (str() as name, str() as key):
                assert READS[name](bolt.numbers, key) == READS[name](model, key)
            case (str() as name, str() as key, int() as number):
                assert CHANGES[name](bolt.numbers, key, number) == CHANGES[name](model, key, number)
        if tracks:
            # Not looked at by way of the table: that would enter the numbers of columns.
            assert {key for key in before.keys() | model.keys() if before.get(key) != model.get(key)} <= changed
            assert changed <= {*"abcdefgz"}
    assert bolt.numbers == model


def test_a_missing_number_is_zero_and_a_missing_list_becomes_part_of_the_state() -> None:
    bolt = Lists()
    assert (bolt.numbers["a"], bolt.numbers) == (0, {})
    bolt.lists["a"].append(1)
    assert bolt.lists == {"a": [1]}
    assert Lists().lists == {}

    class Pairs(Bolt):
        pairs = KeyedState(Counted)

    with pytest.raises(KeyError, match="a"):
        _ = Pairs().pairs["a"]


class Counted:
    """A value that needs an argument."""

    def __init__(self, number: int) -> None: ...


@example([("a", "append")])
@example([("a", "get")])
@example([("a", "values")])
@example([("a", "items")])
@example([("a", "delete")])
@given(st.lists(st.tuples(KEYS, st.sampled_from(["append", "get", "values", "items", "read", "delete"])), max_size=30))
def test_values_changed_in_place_are_noticed_if_they_are_read(events: list[tuple[str, str]]) -> None:
    old, new, changed = Lists(), Lists(), set[Any]()
    old.lists.update({key: [0] for key in "abc"})
    source, target = OperatorState(old), OperatorState(new)
    source.track(changed)
    target.put(source.part(source.all_keys()))
    for key, event in events:
        match event:
            case "append":
                old.lists[key].append(1)
            case "get":
                (old.lists.get(key) or []).append(2)
            case "values":
                for each in old.lists.values():
                    each.append(3)
            case "items":
                dict(old.lists.items())[min(old.lists)].append(4) if old.lists else None
            case "delete":
                old.lists.pop(key, None)
                old.numbers[key] += 1
            case _:
                assert old.numbers[key] >= 0
    source.track(None)
    target.put(source.part(changed))
    assert (new.lists, new.numbers) == (old.lists, old.numbers)
    assert type(old.lists) is Table


@given(
    st.dictionaries(KEYS | st.tuples(KEYS, st.integers(0, 3)), st.integers(1, 9), max_size=20),
    st.lists(st.integers(0, 2), min_size=KEY_GROUPS, max_size=KEY_GROUPS),
)
def test_parts_by_key_groups_are_disjoint_and_add_up_to_the_whole(entries: dict[Any, int], owner: list[int]) -> None:
    bolt, parts, again = Counts(), [Counts() for _ in range(3)], Counts()
    bolt.numbers.update(entries)
    whole = OperatorState(bolt).snapshot()
    for number, part in enumerate(parts):
        OperatorState(part).put_groups(whole, {group for group in range(KEY_GROUPS) if owner[group] == number}, 1)
        assert all(owner[group] == number for group in groups_of(part.numbers))
        OperatorState(again).absorb(OperatorState(part))
    assert sum(len(part.numbers) for part in parts) == len(entries)
    assert again.numbers == entries


def test_values_of_a_key_that_two_executors_have_are_merged() -> None:
    class Merged(Bolt):
        totals = KeyedState(int, merge=add)
        names = KeyedState(list[str], merge=add)

    bolts = [Merged(), Merged(), Merged()]
    for number, bolt in enumerate(bolts[:2], 1):
        bolt.totals.update({"a": number, number: 5})
        bolt.names["x"].append(str(number))
        assert OperatorState(bolt).merges
        OperatorState(bolts[2]).put(OperatorState(bolt).snapshot(), merge=True)
    assert bolts[2].totals == {"a": 3, 1: 5, 2: 5}
    assert bolts[2].names == {"x": ["1", "2"]}


def test_state_beyond_its_limit_fails_with_its_name_and_size() -> None:
    class Limited(Bolt):
        few = KeyedState(bytes, most_bytes=1000)

    bolt = Limited()
    bolt.few["a"] = bytes(900)
    OperatorState(bolt).snapshot()
    bolt.few["b"] = bytes(300)
    with pytest.raises(RunError, match=r"state 'few' has 1,2\d\d bytes with 2 keys, more than its limit 1,000"):
        OperatorState(bolt).snapshot()


@pytest.mark.parametrize("kind", [float, int])
def test_numbers_of_columns_are_combined_by_any_function(kind: Any) -> None:
    class Extremes(Bolt):
        highest = KeyedState(kind)
        sums = KeyedState(kind)

    bolt, expected, sums = Extremes(), dict[str, Any](), defaultdict[str, Any](kind)
    for keys, numbers in ((["b", "a", "b"], [3, 1, 2]), (["a", "c"], [7, -1]), ([], [])):
        column = pa.array(keys, pa.string()), pa.array(list(map(kind, numbers)), pa.from_numpy_dtype(np.dtype(kind)))
        bolt.highest.fold(*column, np.maximum)
        bolt.sums.fold(*column, np.add)
        for key, number in zip(keys, numbers, strict=True):
            expected[key] = max(expected.get(key, number), number)
            sums[key] += number
    assert (bolt.highest, bolt.sums) == (expected, sums)
    assert {type(value) for value in bolt.highest.values()} == {kind}


def test_a_type_that_cannot_be_decoded_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="is not supported"):
        KeyedState(dict[str, int] | list[int] | tuple[int, ...])  # type: ignore[arg-type]


def test_a_key_of_another_executor_is_an_error_instead_of_being_lost() -> None:
    bolt = Counts()
    bolt.numbers.update({"a": 1, ("all", 2): 3})
    (own,), (other,) = groups_of(["a"]), groups_of([("all", 2)])
    whole = OperatorState(bolt).snapshot()
    again = Counts()
    OperatorState(again).put_groups(whole, {own}, 1, {own, other})
    assert again.numbers == {"a": 1}
    with pytest.raises(RunError, match=r"its state has the key \('all', 2\), which is another executor's: keys begin"):
        OperatorState(Counts()).put_groups(whole, {own}, 1, {own})
    with pytest.raises(RunError, match=r"\('all', 2\), which is another executor's"):
        LeavingState(OperatorState(bolt), {own: 7}, 1).rests()
