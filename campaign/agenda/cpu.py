"""CPU settings of an agenda, by class of nodes, and their resolution to nodes of a cluster."""

from collections.abc import Mapping, Set
from typing import Annotated, Any

from msgspec import Meta, Struct

from agents.cpu.request import CpuRequest
from inventory.cluster import Cluster, machines_of
from inventory.documents import Located, Origin, to_plain
from inventory.errors import UnfitError, nearest
from inventory.values import FileName

Clock = Annotated[float, Meta(gt=0, lt=100)]
"""GHz; values beyond the bounds are probably in another unit."""


class CpuEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of a class of nodes; omitted settings are not changed. See `agents.cpu.request.CpuRequest`."""

    cores: Annotated[int, Meta(ge=1)] | None = None
    governor: Annotated[str, Meta(min_length=1)] | None = None
    min_ghz: Clock | None = None
    max_ghz: Clock | None = None
    turbo: bool | None = None


ALL_CLASSES = "*"

ByClass = Mapping[str, CpuEntry]
"""Class of nodes, or `ALL_CLASSES` -> settings; those of a class take precedence."""


class CpuVariant(Struct, frozen=True, forbid_unknown_fields=True):
    """Labelled CPU settings; every workload runs under every scheduler with each of them."""

    label: FileName
    nodes: ByClass


ByNode = Mapping[str, Mapping[str, Any]]
"""Node -> its CPU settings, as `CpuRequest.to_document` gives them; nodes without any are left out."""


def check_cpu_shape(origin: Origin) -> None:
    """Check `cpu` against the form that its type indicates, so that errors refer to that form.

    Settings without a class of nodes would otherwise be read as classes without settings.
    """
    entry = origin.plain.get("cpu") if isinstance(origin.plain, dict) else None
    here = origin / "cpu"
    for key in entry if isinstance(entry, dict) else ():
        if key in CpuEntry.__struct_fields__:
            raise (here / key).error(f"{key!r} stands below a class of nodes, or '*': cpu: {{'*': {{...}}}}")
    if entry == []:
        raise here.error("lists nothing; leave it out, or give settings with a 'label'")
    if isinstance(entry, dict):
        here.convert(dict[str, CpuEntry])
    elif isinstance(entry, list):
        here.convert(tuple[CpuVariant, ...])


def cpus_of(located: Located[ByClass | tuple[CpuVariant, ...] | None], cluster: Cluster) -> dict[str, ByNode]:
    """Return label of CPU settings -> settings of available nodes; one empty label without variants.

    Raises:
        InputError: there is no node of a class, or settings contradict each other.
        UnfitError: CPUs of nodes that share a machine cannot be set.
    """
    origin = located.origin
    match located.value:
        case None:
            return {"": {}}
        case tuple(variants):
            return {
                variant.label: _settings_of(Located(variant.nodes, origin / at / "nodes"), cluster)
                for at, variant in enumerate(variants)
            }
        case by_class:
            return {"": _settings_of(Located(by_class, origin), cluster)}


def _settings_of(entry: Located[ByClass], cluster: Cluster) -> ByNode:
    """Resolve `entry` of the agenda to settings of the available nodes of a cluster with addresses.

    Raises:
        InputError: there is no node of a class, or settings contradict each other.
        UnfitError: CPUs of nodes that share a machine cannot be set.
    """
    classes = {node.node_class for node in cluster.nodes if node.node_class is not None}
    by_class, origin = entry.value, entry.origin
    for name in by_class:
        if name not in {ALL_CLASSES, *classes}:
            known = (
                f"; there are {', '.join(sorted(classes))} and {ALL_CLASSES!r}"
                if classes
                else f"; none has one: use {ALL_CLASSES!r}"
            )
            raise (origin / name).error(f"no node is of the class {name!r}{nearest(name, classes) or known}")
    settings: dict[str, Mapping[str, Any]] = {}
    for node in cluster.available:
        parts = [
            to_plain(by_class[name]) for name in (ALL_CLASSES, node.node_class) if name is not None and name in by_class
        ]
        merged = {key: value for part in parts for key, value in part.items()}
        if merged:
            settings[node.id] = CpuRequest.from_document(merged, str(origin)).to_document()
    check_own_machines(settings.keys(), cluster, origin, "an agenda without 'cpu'")
    return settings


def check_own_machines(nodes: Set[str], cluster: Cluster, origin: Origin, instead: str) -> None:
    """Check that none of `nodes` shares its machine with another available node; `instead` is for the message.

    Raises:
        UnfitError: one does.
    """
    for machine in machines_of({node.id: node.address or "" for node in cluster.available}):
        if len(machine.nodes) > 1 and nodes & set(machine.nodes):
            raise UnfitError(
                f"{origin}: the nodes {', '.join(machine.nodes)} are one machine, "
                f"whose CPUs are not set for several; possible: one node per machine, or {instead}"
            )
