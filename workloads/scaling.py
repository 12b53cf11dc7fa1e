"""Scaling: which components can have another number of executors, and topologies with other numbers.

Any number of executors can continue with the state of a bolt if it belongs to key groups, can be merged, or does not
exist, and if no row names the executor that it is for. Any number of sources can continue with the records if these
have been emitted up to one record of the whole input, and each source can go to its next one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import structs

from inventory.errors import RunError
from workloads.key_groups import KEY_GROUPS
from workloads.operator_state import OperatorState
from workloads.operators import Operator, Seekable, own_records
from workloads.topology import Component, Executor, Topology

MOST_SCALED = KEY_GROUPS
"""Most executors that a component can be scaled to, so that each can own a key group."""


def single_key(component: Component) -> tuple[str, ...] | None:
    """Return the key that decides which executor gets a row, if it is the same for all rows that not every one gets."""
    keys = {
        entry.fields if entry.grouping == "fields" else None for entry in component.inputs if entry.grouping != "all"
    }
    return keys.pop() if len(keys) == 1 else None


def key_fields(component: Component) -> int:
    """Return the number of fields of the key that decides which executor gets a row; 1 if there is no such key."""
    return len(single_key(component) or " ")


def works_alone(component: Component) -> bool:
    """Return whether only the first executor gets rows."""
    return {entry.grouping for entry in component.inputs} == {"global"}


def is_divisible(component: Component, state: OperatorState) -> bool:
    """Return whether the state of a component's executors belongs to the key groups that they own.

    Executors whose states merge may share keys, so that these need not be those of the grouping.
    """
    return state.is_by_key and not state.merges and single_key(component) is not None


def why_fixed(component: Component, operator: Operator | None = None, spouts: int = 1) -> str:
    """Return why the number of a component's executors cannot change while a topology runs; empty if it can.

    Args:
        component: the component.
        operator: an operator of it; None: unknown, so that only its kind and its inputs count.
        spouts: number of spouts of the topology.

    >>> why_fixed(Component("source", "spout"), spouts=2)
    'it is one of several spouts, which share the records of one rate'
    """
    if component.kind == "spout":
        if spouts > 1:
            return "it is one of several spouts, which share the records of one rate"
        return "" if operator is None or isinstance(operator, Seekable) else "its spout has no seek()"
    groupings = {entry.grouping for entry in component.inputs}
    if not groupings:
        return "it has no inputs, so that its executors do nothing"
    if "direct" in groupings:
        return "it has a direct grouping, whose rows name executors"
    if operator is None or works_alone(component):
        return ""
    state = OperatorState(operator)
    if state.is_none or is_divisible(component, state) or (state.merges and "all" not in groupings):
        return ""
    if not state.is_by_key:
        return "not all of its state is KeyedState: its snapshot() can only be restored as a whole"
    return "its state is not one of a single key, and cannot be merged"


def spouts_of(topology: Topology) -> int:
    """Return the number of spouts of a topology."""
    return sum(component.kind == "spout" for component in topology.components)


def all_records(positions: Sequence[int]) -> int:
    """Return how many first records of the whole input executors have emitted that have these positions.

    Raises:
        RunError: the records that they have emitted are not the first ones.

    >>> all_records([3, 3, 2])
    8
    """
    records = sum(positions)
    if [own_records(records, index, len(positions)) for index in range(len(positions))] != list(positions):
        raise RunError(f"sources at {', '.join(map(str, positions))} have not emitted the first {records} records")
    return records


def shared_anew(positions: Mapping[str, int], sources: Collection[str]) -> dict[str, int]:
    """Return the positions of other sources that have emitted as many records together.

    Args:
        positions: of the sources so far.
        sources: names of all next sources, of one component.

    >>> shared_anew({"read[0]": 5, "read[1]": 3}, ["read[0]", "read[1]", "read[2]"])
    {'read[0]': 3, 'read[1]': 3, 'read[2]': 2}
    """
    records = sum(positions.values())
    return {name: own_records(records, Executor.named(name).index, len(sources)) for name in sources}


def sizes_of(executors: Iterable[str]) -> dict[str, int]:
    """Return the number of executors of each component, given the names of all executors.

    >>> sizes_of(["read[0]", "count[0]", "count[1]"])
    {'read': 1, 'count': 2}
    """
    return dict(Counter([Executor.named(name).component for name in executors]))


def resized(topology: Topology, sizes: Mapping[str, int]) -> Topology:
    """Return the topology with other numbers of executors; components that are not named keep theirs."""
    if all(sizes.get(each.id, each.parallelism) == each.parallelism for each in topology.components):
        return topology
    components = tuple(
        structs.replace(each, parallelism=sizes.get(each.id, each.parallelism)) for each in topology.components
    )
    return structs.replace(topology, components=components)
