"""Demands of a workload's executors in an agenda: CPU and memory per component, and the heap of a worker."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from inventory.documents import Origin, to_plain
from inventory.errors import nearest
from inventory.values import NonNegative
from workloads.topology import Component, Topology


class Demands(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Demands of one executor of a component: CPU in points (100 = one core), memory in MB, as in topology files."""

    cpu: NonNegative | None = None
    onheap_mb: NonNegative | None = None
    offheap_mb: NonNegative | None = None
    memory_mb: NonNegative | None = None


def with_demands(
    topology: Topology, demands: Mapping[str, Demands], worker_max_heap_mb: float | None, origin: Origin
) -> Topology:
    """Return the topology with the demands of the entry of its workload, which is at `origin`.

    Raises:
        InputError: a component is unknown, its memory is given twice, or an executor needs more heap than a worker has.
    """
    here = origin / "demands"
    for name, given in demands.items():
        if name not in topology.component:
            raise (here / name).error(f"the topology has no component {name!r}{nearest(name, topology.component)}")
        if given.memory_mb is not None and (given.onheap_mb is not None or given.offheap_mb is not None):
            raise (here / name / "memory_mb").error("give memory_mb, or onheap_mb and offheap_mb, not both")
    components = tuple(
        _demanding(component, demands[component.id]) if component.id in demands else component
        for component in topology.components
    )
    heap_mb = topology.worker_max_heap_mb if worker_max_heap_mb is None else worker_max_heap_mb
    if demands or worker_max_heap_mb is not None:
        for component in components:
            if component.onheap > heap_mb:
                given_at = here / component.id if component.id in demands else origin / "worker_max_heap_mb"
                raise given_at.error(
                    f"an executor of {component.id!r} needs {component.onheap:g} MB of heap, "
                    f"but a worker has {heap_mb:g} MB (worker_max_heap_mb)"
                )
    return replace(topology, components=components, worker_max_heap_mb=heap_mb)


def _demanding(component: Component, demands: Demands) -> Component:
    """Return the component with these demands; memory in one form replaces memory in the other."""
    given = to_plain(demands)
    if "memory_mb" in given:
        given |= {"onheap_mb": None, "offheap_mb": None}
    elif "onheap_mb" in given or "offheap_mb" in given:
        given["memory_mb"] = None
    return replace(component, **given)
