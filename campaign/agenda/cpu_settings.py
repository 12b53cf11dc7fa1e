"""What an agenda says of CPUs: settings per class of nodes, and for every run those of each node."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from agents.cpu.request import CpuRequest
from campaign.agenda.machines import machines_of
from inventory.cluster import Cluster
from inventory.documents import Document, Steps, dotted, to_plain
from inventory.errors import UnfitError, nearest

ALL = "*"
"""Stands for all classes; a class of its own overrules it, setting by setting."""

Clock = Annotated[float, Meta(gt=0, lt=100)]
"""In GHz; what is far outside is a clock in another unit."""


class CpuEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of a class of nodes; what is left out stays as it is. See `agents.cpu.request.CpuRequest`."""

    cores: Annotated[int, Meta(ge=1)] | None = None
    governor: Annotated[str, Meta(min_length=1)] | None = None
    min_ghz: Clock | None = None
    max_ghz: Clock | None = None
    turbo: bool | None = None


ByClass = Mapping[str, CpuEntry]
"""Class of nodes, or `ALL` -> settings."""

ByNode = Mapping[str, Mapping[str, Any]]
"""Node -> its settings, as `CpuRequest.to_document` gives them; nodes without any are left out."""


def settings_of(document: Document, steps: Steps, entry: ByClass, cluster: Cluster) -> ByNode:
    """What `entry`, which stands at `steps` of the agenda, means for the available nodes of a cluster with addresses.

    Raises:
        InputError: there is no node of a class, or settings contradict each other.
        UnfitError: CPUs of nodes that share a machine cannot be set.
    """
    classes = {node.node_class for node in cluster.nodes if node.node_class is not None}
    for name in entry:
        if name not in {ALL, *classes}:
            known = (
                f"; there are {', '.join(sorted(classes))} and {ALL!r}" if classes else f"; none has one: use {ALL!r}"
            )
            raise document.error((*steps, name), f"no node is of the class {name!r}{nearest(name, classes) or known}")
    found: dict[str, Mapping[str, Any]] = {}
    for node in cluster.available:
        parts = [to_plain(entry[name]) for name in (ALL, node.node_class) if name is not None and name in entry]
        merged = {key: value for part in parts for key, value in part.items()}
        if merged:
            found[node.id] = CpuRequest.from_document(merged, f"{document.where(steps)}: {dotted(steps)}").to_document()
    for machine in machines_of({node.id: node.address or "" for node in cluster.available}):
        if len(machine.nodes) > 1 and found.keys() & set(machine.nodes):
            raise UnfitError(
                f"{document.where(steps)}: {dotted(steps)}: the nodes {', '.join(machine.nodes)} are one machine, "
                "whose CPUs are not set for several; possible: one node per machine, or an agenda without 'cpu'"
            )
    return found
