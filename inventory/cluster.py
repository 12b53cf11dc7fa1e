"""`Cluster` and `Node`: the machines available to placements, as described by a file.

Frozen values with derived properties. A key that was left out stays `None` where its default depends on others, so that
loading and saving a cluster gives the same file; the properties give the effective value.
"""

import ipaddress
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from inventory.documents import Document, Located, Origin
from inventory.errors import nearest
from inventory.values import EnergyModel, MeterLag, NonNegative, Positive

Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
SlotCount = Annotated[int, Meta(ge=0, le=65535)]
SlotIndex = Annotated[int, Meta(ge=0, le=65534)]
Name = Annotated[str, Meta(min_length=1)]

DEFAULT_RACK = "default-rack"


class Facts(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Processor facts of a node: the sources of FLOPs per cycle other than manual configuration.

    `measured_flops_error` is the relative error of `measured_flops_per_cycle`, `ghz_error` that of a measured clock; a
    clock without it is exact.
    """

    bogomips: Positive | None = None
    isa: tuple[str, ...] | None = None
    measured_flops_per_cycle: Positive | None = None
    measured_flops_error: NonNegative | None = None
    ghz_error: NonNegative | None = None


class Node(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    dict=True,
    rename={"node_class": "class"},
):
    """One machine of the cluster, or one part of a machine in loopback.

    CPU is counted in points (100 = one core), memory in MB, clock in GHz, RAM in GB. `ports` name the slots, in
    the order of their indices. `uptime_s` is the time since the node came up; None means unknown and counts as long.
    """

    id: Name
    address: str | None = None
    rack: str = DEFAULT_RACK
    host: str | None = None
    node_class: str | None = None
    slots: SlotCount = 4
    ports: tuple[Port, ...] | None = None
    cores: AtLeastOne = 4
    cpu: NonNegative | None = None
    supervisor_cpu: NonNegative | None = None
    memory_mb: NonNegative = 4096.0
    capacity: NonNegative | None = None
    sockets: AtLeastOne = 1
    ghz: Positive | None = None
    flops_per_cycle: Positive | None = None
    ram_gb: NonNegative | None = None
    facts: Facts | None = None
    frequencies_hz: tuple[AtLeastOne, ...] | None = None
    power: EnergyModel | None = None
    meter_lag: MeterLag | None = None
    reliability: Share | None = None
    max_load: NonNegative | None = None
    available: bool = True
    uptime_s: NonNegative | None = None

    @property
    def machine(self) -> str:
        """Host of the node; nodes on one host share its hardware."""
        return self.host or self.id

    @property
    def cpu_points(self) -> float:
        """CPU in points: `cpu`, else sockets * cores * 100."""
        return float(self.sockets * self.cores * 100) if self.cpu is None else self.cpu

    @property
    def demand_points(self) -> float:
        """CPU points that demands of components may add up to, as Storm's `supervisor.cpu.capacity`."""
        return self.cpu_points if self.supervisor_cpu is None else self.supervisor_cpu

    @cached_property
    def slot_order(self) -> Sequence[int]:
        """Slot indices by ascending port, or by index if ports are not named."""
        if self.ports is None:
            return range(self.slots)
        return sorted(range(self.slots), key=self.ports.__getitem__)

    @property
    def ram(self) -> float:
        """RAM in GB: `ram_gb`, else memory_mb / 1024."""
        return self.memory_mb / 1024 if self.ram_gb is None else self.ram_gb


class NetworkLink(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"sender": "from", "receiver": "to"},
):
    """Measured one-way delay in ms and rate in Mbit/s between two nodes; None: not known.

    It holds for both directions unless the other direction has an entry of its own.
    """

    sender: Name
    receiver: Name
    delay_ms: NonNegative | None = None
    rate_mbit: Positive | None = None


class Network(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """R-Storm's network distance between two nodes, by rack; measured links, if any."""

    same_rack: NonNegative = 1.0
    other_rack: NonNegative = 2.0
    links: tuple[NetworkLink, ...] = ()


class ExistingWorker(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Running worker: its topology, its slot, and its executors by name."""

    topology: Name
    node: Name
    slot: SlotIndex
    executors: tuple[str, ...] = ()


class Cluster(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """All nodes, in the order of the file, and the workers running on them."""

    nodes: Annotated[tuple[Node, ...], Meta(min_length=1)]
    network: Network = Network()
    existing: tuple[ExistingWorker, ...] = ()

    @cached_property
    def by_id(self) -> dict[str, Node]:
        """Nodes by id."""
        return {node.id: node for node in self.nodes}

    @property
    def available(self) -> Sequence[Node]:
        """Available nodes, in the order of the file."""
        return [node for node in self.nodes if node.available]

    def without(self, nodes: Container[str]) -> "Cluster":
        """Return the cluster with these nodes not available."""
        return replace(
            self, nodes=tuple(replace(each, available=each.available and each.id not in nodes) for each in self.nodes)
        )

    def first_available(self, count: int | None) -> "Cluster":
        """Return the cluster with its first `count` available nodes only; with all of them for None."""
        return self if count is None else self.without({node.id for node in self.available[count:]})


def cluster_from_document(document: Document) -> Located[Cluster]:
    """Convert a document to a `Cluster`, with the checks that involve several keys.

    A node with `ports` and without `slots` has one slot per port.
    """
    cluster = document.convert(Cluster)
    cluster = replace(cluster, nodes=tuple(map(_counting_ports, cluster.nodes, document.data["nodes"])))
    origin = document.origin
    seen: set[str] = set()
    addresses: dict[str, str] = {}
    for at, node in enumerate(cluster.nodes):
        here = origin / "nodes" / at
        if address := _ipv6_address(node.id):
            raise (here / "id").error(
                f"{node.id!r} is an IPv6 address, which cannot be a node's name, because names are used in file names; "
                f"give the node a name: n1 ansible_host={address} (in a cluster file id and address)"
            )
        if node.id in seen:
            raise (here / "id").error(f"two nodes are called {node.id!r}")
        seen.add(node.id)
        if node.ports is not None and len(set(node.ports)) != len(node.ports):
            raise (here / "ports").error("a port is named twice")
        if node.ports is not None and len(node.ports) != node.slots:
            raise (here / "ports").error(f"{len(node.ports)} ports are named for {node.slots} slots")
        if node.address is not None:
            if node.address in addresses:
                raise (here / "address").error(f"{node.address} is the address of {addresses[node.address]!r} too")
            addresses[node.address] = node.id
    _check_links(origin, cluster)
    _check_existing(origin, cluster)
    return Located(cluster, origin)


def _ipv6_address(name: str) -> str:
    """Return the IPv6 address that a name is, without brackets; an empty text for any other name."""
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return ""
    return str(address) if address.version == 6 else ""


def _counting_ports(node: Node, written: Mapping[str, object]) -> Node:
    if node.ports is None or "slots" in written:
        return node
    return replace(node, slots=len(node.ports))


def _check_links(origin: Origin, cluster: Cluster) -> None:
    seen: set[tuple[str, str]] = set()
    for at, link in enumerate(cluster.network.links):
        here = origin / "network" / "links" / at
        for key, node in (("from", link.sender), ("to", link.receiver)):
            if node not in cluster.by_id:
                raise (here / key).error(f"unknown node {node!r}{nearest(node, cluster.by_id)}")
        if link.sender == link.receiver:
            raise (here / "to").error(f"{link.receiver!r} is the node itself; a link leads to another")
        if (link.sender, link.receiver) in seen:
            raise (here / "to").error(f"the link from {link.sender!r} to {link.receiver!r} is given twice")
        seen.add((link.sender, link.receiver))


def _check_existing(origin: Origin, cluster: Cluster) -> None:
    taken: set[tuple[str, int]] = set()
    for at, worker in enumerate(cluster.existing):
        here = origin / "existing" / at
        if worker.node not in cluster.by_id:
            hint = nearest(worker.node, cluster.by_id)
            raise (here / "node").error(f"unknown node {worker.node!r}{hint}")
        slots = cluster.by_id[worker.node].slots
        if worker.slot >= slots:
            raise (here / "slot").error(f"slot {worker.slot} is beyond the {slots} slots of {worker.node}")
        if (worker.node, worker.slot) in taken:
            raise (here / "slot").error(f"slot {worker.slot} of {worker.node} holds two workers")
        taken.add((worker.node, worker.slot))


@dataclass(frozen=True)
class Machine:
    """A machine of the cluster.

    Attributes:
        nodes: nodes on this machine; the meters of the first are used.
        is_this_host: whether the nodes are processes of this host.
    """

    nodes: tuple[str, ...]
    is_this_host: bool = False

    @property
    def metered(self) -> str:
        """The node whose trace rows describe the machine."""
        return self.nodes[0]


def machines_of(addresses: Mapping[str, str], here: Collection[str] = ()) -> list[Machine]:
    """Return the machines of nodes; nodes that are processes of this host share one.

    Args:
        addresses: node -> its data address.
        here: nodes that are processes of this host although their addresses are not loopback addresses.
    """
    ours = tuple(
        sorted(n for n, address in addresses.items() if n in here or ipaddress.ip_address(address).is_loopback)
    )
    return [Machine(ours, True)] * bool(ours) + [Machine((node,)) for node in sorted(addresses.keys() - set(ours))]
