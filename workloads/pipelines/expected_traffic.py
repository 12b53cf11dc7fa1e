"""What would flow between the executors of a topology that reads a recording: its rate, and how its keys are dealt."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from workloads.key_groups import executor_of, key_group
from workloads.topology import Executor, Input, Topology
from workloads.traffic import Edge, Traffic

Shares = Mapping[int, float]
"""Index of an executor -> its share of a stream."""


def expected_traffic(topology: Topology, keys: DataFrame, rows_per_s: float) -> Traffic:
    """Return the rates of all edges when every bolt emits as many tuples as it takes in.

    Args:
        topology: its spouts share the rows evenly.
        keys: columns of the recording by which streams may be grouped; a fields grouping by others is taken as even.
        rows_per_s: of the recording.

    Raises:
        InputError: the topology has a cycle.
    """
    emitted: dict[Executor, float] = {}
    taken: dict[Executor, float] = dict.fromkeys(topology.executors, 0.0)
    edges: dict[tuple[str, str], float] = {}
    for name in topology.order:
        component = topology.component[name]
        for entry in component.inputs:
            shares = _shares(entry, component.parallelism, keys)
            for source in topology.executors_of(entry.source):
                for index, share in shares.items():
                    rate = emitted[source] * share
                    destination = Executor(name, index)
                    taken[destination] += rate
                    pair = source.name, destination.name
                    edges[pair] = edges.get(pair, 0.0) + rate
        for executor in topology.executors_of(name):
            spout = component.kind == "spout"
            emitted[executor] = rows_per_s / component.parallelism if spout else taken[executor]
    return Traffic(tuple(Edge(*pair, tuples_per_s=rate) for pair, rate in edges.items() if rate))


def _shares(entry: Input, parallelism: int, keys: DataFrame) -> Shares:
    if entry.grouping == "all":
        return dict.fromkeys(range(parallelism), 1.0)
    if entry.grouping == "global":
        return {0: 1.0}
    if entry.grouping == "fields" and set(entry.fields) <= set(keys.columns):
        return _dealt(keys, entry.fields, parallelism)
    return dict.fromkeys(range(parallelism), 1 / parallelism)


def _dealt(keys: DataFrame, fields: Sequence[str], parallelism: int) -> Shares:
    """Return the shares of the executors, from the keys and the testbed's fields grouping."""
    shares = dict.fromkeys(range(parallelism), 0.0)
    counted = keys.groupBy(*fields).count()
    total = 0
    for *key, count in counted.toLocalIterator():
        shares[executor_of(key_group(tuple(key)), parallelism)] += count
        total += count
    return {index: share / total for index, share in shares.items()}
