"""Scalability of components, by kind, groupings and state."""

from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.errors import RunError
from workloads.keyed_state import KeyedState
from workloads.operator_state import OperatorState
from workloads.operators import Bolt, Spout, own_records
from workloads.scaling import all_records, is_divisible, resized, shared_anew, sizes_of, why_fixed
from workloads.topology import ACKER, Component, Input, Topology, ackers


class Stateful(Bolt):
    def snapshot(self) -> bytes:
        return b"state"


class Grouped(Bolt):
    counts = KeyedState(int)


class Mixed(Grouped, Stateful):
    pass


class Total(Bolt):
    counts = KeyedState(int, merge=add)


SHUFFLE, LOCAL, ALL = Input("read"), Input("read", "local-or-shuffle"), Input("read", "all")
GLOBAL, DIRECT = Input("read", "global"), Input("read", "direct")
WORD, LINE = Input("read", "fields", ("word",)), Input("other", "fields", ("line",))

NO_INPUTS, NAMED = "it has no inputs", "rows name executors"
STATE = "not one of a single key, and cannot be merged"
WHOLE = "not all of its state is KeyedState"


@pytest.mark.parametrize(
    ("inputs", "operator", "why"),
    [
        ((SHUFFLE,), Bolt(), ""),
        ((LOCAL,), Bolt(), ""),
        ((SHUFFLE,), Total(), ""),
        ((SHUFFLE,), Stateful(), WHOLE),
        ((SHUFFLE,), Grouped(), STATE),
        ((WORD,), Bolt(), ""),
        ((WORD,), Grouped(), ""),
        ((WORD,), Stateful(), WHOLE),
        ((WORD,), Mixed(), WHOLE),
        ((WORD, Input("other", "fields", ("word",))), Grouped(), ""),
        ((WORD, LINE), Grouped(), STATE),
        ((WORD, LINE), Total(), ""),
        ((WORD, SHUFFLE), Grouped(), STATE),
        ((WORD, ALL), Grouped(), ""),
        ((ALL,), Bolt(), ""),
        ((ALL,), Stateful(), WHOLE),
        ((ALL,), Total(), STATE),
        ((GLOBAL,), Stateful(), ""),
        ((GLOBAL, SHUFFLE), Stateful(), WHOLE),
        ((DIRECT,), Bolt(), NAMED),
        ((WORD, DIRECT), Grouped(), NAMED),
        ((WORD, DIRECT), None, NAMED),
        ((WORD, LINE), None, ""),
        ((), Bolt(), NO_INPUTS),
    ],
)
def test_a_bolt_scales_if_its_rows_and_its_state_can_go_to_any_number_of_executors(
    inputs: tuple[Input, ...], operator: Bolt | None, why: str
) -> None:
    found = why_fixed(Component("bolt", "bolt", 2, inputs=inputs), operator)
    assert (why in found) if why else not found


def test_state_that_merges_is_not_divided_by_the_keys_of_the_grouping() -> None:
    count = Component("bolt", "bolt", 2, inputs=(WORD,))
    assert [is_divisible(count, OperatorState(bolt)) for bolt in (Grouped(), Total(), Mixed())] == [True, False, False]


class Seeking(Spout):
    def seek(self, position: int) -> None: ...


def test_a_spout_scales_if_it_can_go_to_any_record_and_is_the_only_one() -> None:
    spout = Component("read", "spout")
    assert [why_fixed(spout), why_fixed(spout, Seeking())] == ["", ""]
    assert why_fixed(spout, Spout()) == "its spout has no seek()"
    assert "one of several spouts" in why_fixed(spout, Seeking(), spouts=2)


@given(st.integers(0, 10**12), st.integers(1, 40), st.integers(1, 40), st.data())
def test_any_number_of_sources_divides_the_same_first_records(
    records: int, before: int, after: int, data: st.DataObject
) -> None:
    shares = [own_records(records, index, before) for index in range(before)]
    assert all_records(shares) == records
    again = [own_records(all_records(shares), index, after) for index in range(after)]
    assert sum(again) == records
    names = [f"read[{index}]" for index in range(after)]
    assert list(shared_anew({f"read[{at}]": share for at, share in enumerate(shares)}, names).values()) == again
    # The next record of each source is the first one of its share that has not been emitted.
    firsts = [position * after + index for index, position in enumerate(again)]
    assert sorted(firsts) == list(range(records, records + after))
    ahead = data.draw(st.integers(0, before - 1))
    shares[ahead] += before * after + 1
    if before > 1:
        with pytest.raises(RunError, match="have not emitted the first"):
            all_records(shares)


def test_nine_records_of_two_sources_are_three_each_of_three() -> None:
    assert all_records([5, 4]) == 9
    assert [own_records(9, index, 3) for index in range(3)] == [3, 3, 3]
    with pytest.raises(RunError, match="sources at 5, 3 have not emitted the first 8 records"):
        all_records([5, 3])


def test_ackers_keep_their_number() -> None:
    (acker,) = ackers(3)
    assert acker.id == ACKER
    assert NO_INPUTS in why_fixed(acker)


def test_a_topology_gets_other_numbers_of_executors_and_keeps_the_rest() -> None:
    topology = Topology("wc", (Component("read", "spout", 2), Component("count", "bolt", 4, inputs=(WORD,))))
    larger = resized(topology, {"count": 5, "absent": 7})
    assert sizes_of(executor.name for executor in larger.executors) == {"read": 2, "count": 5}
    assert resized(larger, {"count": 4}) == topology
    assert resized(topology, {"read": 2}) is topology
