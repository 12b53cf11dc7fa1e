"""Configuration of Flink's processes: resources of TaskManagers, and refused topologies."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agents.protocol import Slot
from engines.flink.configuration import (
    check_flink_topology,
    job_manager_values,
    memory_of,
    placement_difference,
    resources,
    task_manager_values,
    task_managers,
    yaml_of,
)
from engines.flink.processes import last_cause
from inventory.errors import InputError, RunError
from workloads.topology import Component, Input, Topology, ackers

STREAM = {"default": {"word": "str"}}
WORDCOUNT = Topology(
    id="wordcount",
    components=(
        Component("spout", "spout", 2, outputs=STREAM),
        Component("split", "bolt", 3, outputs=STREAM, inputs=(Input("spout", "shuffle"),)),
        Component("count", "bolt", 2, inputs=(Input("split", "fields", ("word",)),)),
        *ackers(1),
    ),
)
ADDRESSES = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
EXECUTORS = [executor.name for executor in WORDCOUNT.executors if executor.component != "__acker"]
SLOTS = [Slot("n1", 0), Slot("n1", 1), Slot("n2", 0)]

placements = st.lists(st.sampled_from(SLOTS), min_size=len(EXECUTORS), max_size=len(EXECUTORS)).map(
    lambda slots: dict(zip(EXECUTORS, slots, strict=True))
)


@given(placements)
def test_each_worker_offers_the_resources_of_its_executors(places: dict[str, Slot]) -> None:
    managers = task_managers(WORDCOUNT, places, ADDRESSES)
    assert [manager.worker for manager in managers] == sorted(set(places.values()))
    names, memory = resources(WORDCOUNT), memory_of(WORDCOUNT)
    assert names == {"spout": "component0", "split": "component1", "count": "component2"}
    for manager in managers:
        values = yaml.safe_load(yaml_of(task_manager_values(manager, names, memory, "127.0.0.2", 7000, Path("/job/x"))))
        here = [name for name, slot in places.items() if slot == manager.worker]
        assert values["taskmanager.numberOfTaskSlots"] == len(here)
        assert values["taskmanager.bind-host"] == values["taskmanager.host"] == ADDRESSES[manager.worker.node]
        for component, resource in names.items():
            executors = [name for name in here if name.startswith(component)]
            assert values.get(f"external-resource.{resource}.amount", 0) == len(executors)
            assert (resource in values["external-resources"]) == bool(executors)


def test_memory_grows_with_the_topology_only() -> None:
    larger = Topology(
        id="t", components=tuple(replace(c, parallelism=40 * c.parallelism) for c in WORDCOUNT.components)
    )
    small, large = memory_of(WORDCOUNT), memory_of(larger)
    assert (small.heap, large.heap) == (128, 320)
    assert small.network < large.network
    assert f"-Xmx{large.heap + 64}m" in large.java_options


@given(placements, placements)
def test_executors_of_a_component_may_be_exchanged_and_nothing_else(
    places: dict[str, Slot], others: dict[str, Slot]
) -> None:
    assert placement_difference(WORDCOUNT, places, places) == ""
    exchanged = {**places, "split[0]": places["split[2]"], "split[2]": places["split[0]"]}
    assert placement_difference(WORDCOUNT, places, exchanged) == ""

    def counts(assignment: dict[str, Slot]) -> list[tuple[str, Slot]]:
        return sorted((name.partition("[")[0], slot) for name, slot in assignment.items())

    assert bool(placement_difference(WORDCOUNT, places, others)) == (counts(places) != counts(others))


def test_a_difference_is_named() -> None:
    places = dict.fromkeys(EXECUTORS, SLOTS[0])
    message = placement_difference(WORDCOUNT, places, {**places, "count[1]": SLOTS[2]})
    assert message == "n1, slot 0 has 1 executors of count, the placement 2"


def test_the_job_manager_listens_on_its_address_only() -> None:
    values = job_manager_values("127.0.0.2", 7000, Path("/job/x"))
    assert {values[key] for key in ("jobmanager.bind-host", "rest.bind-address", "rest.address")} == {"127.0.0.2"}


def test_an_executor_without_a_place_and_a_node_without_an_address_are_errors() -> None:
    places = dict.fromkeys(EXECUTORS, SLOTS[0])
    with pytest.raises(RunError, match="node n2 has no address"):
        task_managers(WORDCOUNT, {**places, "count[1]": SLOTS[2]}, {"n1": "127.0.0.2"})
    del places["count[1]"]
    with pytest.raises(RunError, match=r"count\[1\] has no place"):
        task_managers(WORDCOUNT, places, ADDRESSES)


@pytest.mark.parametrize("grouping", ["direct", "local-or-shuffle"])
def test_groupings_that_flink_does_not_have_are_refused(grouping: str) -> None:
    check_flink_topology(WORDCOUNT)
    spout = Component("spout", "spout", 1, outputs=STREAM)
    bolt = Component("count", "bolt", 1, inputs=(Input("spout", grouping),))  # type: ignore[arg-type] # parametrized
    with pytest.raises(InputError, match=f"'count': the grouping '{grouping}' is not supported with engine: flink"):
        check_flink_topology(Topology(id="t", components=(spout, bolt)))


def test_a_spout_of_several_streams_is_refused() -> None:
    spout = Component("spout", "spout", 1, outputs={**STREAM, "late": {"word": "str"}})
    with pytest.raises(InputError, match="'spout': with engine: flink, a spout can have one stream only"):
        check_flink_topology(Topology(id="t", components=(spout,)))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("INFO started\nERROR bad\nCaused by: a.B: first\n\tat x\nCaused by: c.D: second\n\tat y\n", "c.D: second"),
        ("INFO started\nError: no class\n\n", "Error: no class"),
        ("", "it has written nothing"),
    ],
)
def test_the_last_cause_of_a_log_is_shown(text: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    assert last_cause(tmp_path / "log") == cause
    assert last_cause(tmp_path / "none") == "it has written nothing"
