"""`Hosts`: the machines of an Ansible inventory, how to connect to them, and the cluster that its workers form.

The group `workers` holds the cluster's nodes. Facts gathered from a host during provisioning are in `facts/HOST.json`
beside the inventory. They supply what the inventory may omit: cores, clock, memory, FLOPs per cycle.
"""

import ipaddress
from collections.abc import Callable, Mapping, Set
from functools import cache, cached_property, reduce
from pathlib import Path
from typing import Any, Literal

import yaml
from msgspec import Struct

from inventory.ansible_connection import HOST_NAMES, AnsibleConnection
from inventory.ansible_listing import FACTS, Listing, Origins, ansible_inventory
from inventory.cluster import DEFAULT_RACK, AtLeastOne, Cluster, Facts, Name, Share, SlotCount, cluster_from_document
from inventory.documents import Document, Origin, read, to_plain
from inventory.emulation import EmulatedMachine
from inventory.errors import InputError, nearest
from inventory.parsing import Steps, dotted
from inventory.values import EnergyModel, NonNegative, Positive

ROLES = Path(__file__).parent.parent / "ansible" / "roles"
PREFIX = "millrace_"


def _prefixed(field: str) -> str:
    return PREFIX + {"node_class": "class"}.get(field, field)


class Variables(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_prefixed):
    """Variables of one host. Keys have the prefix `millrace_`; `node_class` is `millrace_class`.

    Attributes:
        tier: kind of hosts: 0 machines, 1 addresses of this host, 2 namespaces of this host.
        slots, rack, node_class, capacity, flops_per_cycle, power, reliability, max_load, available: as in a cluster
            file.
        address: data address; default `ansible_host`.
        cores: physical online cores, over all sockets.
        max_ghz: highest clock.
        memory_mb: memory limit of the workers.
        cpu_share: limit of the workers' CPU time, in cores.
        home: folder of the node's environment.
        state: folder of the provisioning state.
        work: folder of the agents' files; default `work` in `state`.
        closed_network: the nodes' network, if nobody else can reach it.
        user: user of agents and login user of campaigns.
        emulate: the machine emulated by a namespace.
    """

    tier: Literal[0, 1, 2] = 0
    slots: SlotCount = 4
    rack: str = DEFAULT_RACK
    node_class: str | None = None
    address: Name | None = None
    cores: AtLeastOne | None = None
    max_ghz: Positive | None = None
    memory_mb: Positive | None = None
    cpu_share: Positive | None = None
    capacity: NonNegative | None = None
    flops_per_cycle: Positive | None = None
    power: EnergyModel | None = None
    reliability: Share | None = None
    max_load: NonNegative | None = None
    available: bool = True
    home: Name = "/opt/millrace"
    state: Name = "/var/lib/millrace"
    work: Name | None = None
    closed_network: Name | None = None
    user: Name = "millrace"
    emulate: EmulatedMachine | None = None


@cache
def names() -> Set[str]:
    """Return all valid variables: those above, and those declared by a role."""
    declared = set(map(_prefixed, Variables.__struct_fields__))
    for path in ROLES.glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            declared.update(entry.get("options", {}))
    return declared


ClosedNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

WORKERS, CONTROLLERS, GENERATORS = "workers", "controllers", "generators"


class Gathered(Struct, frozen=True, kw_only=True):
    """Facts of a host that describe it as a node; the file holds more.

    Attributes:
        sockets: sockets with an online core.
        cores: physical online cores, over all sockets.
        ghz: highest clock currently allowed.
        ghz_error, measured_flops_error: as in a cluster file.
        ram_gb: RAM, in units of 1024**3 bytes.
        bogomips, isa, measured_flops_per_cycle: as in a cluster file.
        frequencies_hz: clocks currently allowed, if its driver has a table.
    """

    gathered_at: str
    sockets: AtLeastOne
    cores: AtLeastOne
    ghz: Positive | None = None
    ghz_error: NonNegative | None = None
    ram_gb: Positive
    bogomips: Positive | None = None
    isa: tuple[str, ...] | None = None
    measured_flops_per_cycle: Positive | None = None
    measured_flops_error: NonNegative | None = None
    frequencies_hz: tuple[AtLeastOne, ...] | None = None


class InventoryHost(Struct, frozen=True, kw_only=True):
    """One machine of the inventory.

    Attributes:
        name: name in the inventory.
        address: data address: `millrace_address`, else that of Ansible, else the name.
        ssh_host: host to connect to, possibly an alias of `~/.ssh/config`.
        ssh_port, ssh_key: from the inventory; None leaves it to the SSH configuration.
        ssh_user: login user of campaigns, `millrace_user`.
        ansible_user: login user of playbooks; None leaves it to the SSH configuration.
        ssh_args: further arguments of OpenSSH from the inventory.
        home: folder of the node's environment; `work`: folder of the agents' files.
        slots, rack, node_class: as in a cluster file.
        groups: groups of the host, innermost first.
        variables: all its variables in the inventory; templates as written.
        gathered: its facts, or None before provisioning.
    """

    name: str
    address: str
    ssh_host: str
    ssh_port: int | None
    ssh_user: str
    ansible_user: str | None
    ssh_key: Path | None
    ssh_args: tuple[str, ...]
    home: str
    work: str
    slots: int
    rack: str
    node_class: str | None
    groups: tuple[str, ...]
    variables: Mapping[str, Any]
    gathered: Gathered | None


class VariablesDocument(Document):
    """`{host: {variable: value}}`; errors name the file and line where the variable is set."""

    def __init__(self, listing: Listing) -> None:
        super().__init__(str(listing.path), listing.variables, {})
        self._origins = Origins(listing)

    def where(self, steps: Steps) -> str:
        return self._origins.where(*map(str, (*steps, "", "")[:2])) if steps else self.source

    def named(self, steps: Steps) -> str:
        host = f"host {steps[0]}" if steps else ""
        return ": ".join(filter(None, (self.where(steps), host, dotted(steps[1:]))))


class Hosts:
    """All hosts of one inventory.

    Attributes:
        path: the inventory's file or folder.
        folder: folder of its `facts`.
        origin: of the hosts' variables; `(origin / host / variable).convert(Kind)` checks one more of them.
    """

    def __init__(self, listing: Listing) -> None:
        """Check all variables read here.

        Raises:
            InputError: a variable is unknown or has a wrong value.
        """
        self.path, self.folder = listing.path, listing.folder
        self.origin = VariablesDocument(listing).origin
        self._listing = listing
        self._variables = {name: self._checked(name) for name in listing.variables}
        self.by_name = {name: self._host(name) for name in listing.variables}

    @cached_property
    def workers(self) -> tuple[InventoryHost, ...]:
        """Return the hosts that are nodes of the cluster, in the inventory's order.

        Raises:
            InputError: there is none.
        """
        members = self.members(WORKERS)
        if not members:
            hint = nearest(WORKERS, set(self._listing.children) - {"all", "ungrouped"})
            raise InputError(f"{self.path}: the group {WORKERS!r} holds no host{hint}")
        return members

    def members(self, group: str) -> tuple[InventoryHost, ...]:
        """Return the hosts of a group; empty when there is no such group."""
        return tuple(self.by_name[name] for name in self._listing.members(group))

    @cached_property
    def tier(self) -> int:
        """Kind of the workers: 0 machines, 1 addresses of this host, 2 namespaces of this host.

        Raises:
            InputError: the workers are not all of one kind.
        """
        first, *others = self.workers
        tier = self._variables[first.name].tier
        for host in others:
            if self._variables[host.name].tier != tier:
                origin = self.origin / host.name / f"{PREFIX}tier"
                raise origin.error(f"{self._variables[host.name].tier}, but {first.name} has {tier}")
        return tier

    @property
    def closed_network(self) -> "ClosedNetwork | None":
        """The network of the workers that nobody else can reach; None if the inventory names none for all of them.

        Raises:
            InputError: it is not a network.
        """
        networks = {self._variables[host.name].closed_network for host in self.workers}
        named = networks.pop()
        if named is None or networks:
            return None
        try:
            return ipaddress.ip_network(named)
        except ValueError as fault:
            origin = self.origin / self.workers[0].name / f"{PREFIX}closed_network"
            raise origin.error(f"{fault}; expected a network such as 10.1.0.0/24") from None

    @cached_property
    def cluster(self) -> Cluster:
        """The workers as a cluster.

        Raises:
            InputError: they do not form a valid cluster.
        """
        return cluster_from_document(self.cluster_document).value

    @cached_property
    def cluster_document(self) -> "ClusterOfHosts":
        """Return the contents of a cluster file with the same nodes."""
        return ClusterOfHosts(self)

    def entry(self, host: InventoryHost) -> dict[str, Any]:
        """Return a host as an entry of a cluster file, from the inventory and, for missing keys, from its facts."""
        says = self._variables[host.name]
        entry = {
            **_machine(says, host.gathered),
            "id": host.name,
            "address": host.address,
            "rack": says.rack,
            "class": says.node_class,
            "slots": says.slots,
            "capacity": says.capacity,
            "flops_per_cycle": says.flops_per_cycle,
            "power": to_plain(says.power),
            "reliability": says.reliability,
            "max_load": says.max_load,
            "available": says.available,
        }
        return {key: value for key, value in entry.items() if value is not None}

    def _checked(self, name: str) -> Variables:
        for variable, value in self._listing.variables[name].items():
            if not variable.startswith(PREFIX):
                continue
            if variable not in names():
                raise (self.origin / name / variable).error(f"unknown variable{nearest(variable, names())}")
            self._check_resolved(name, variable, value, _READ)
        return (self.origin / name).convert(Variables)

    def _check_resolved(self, host: str, variable: str, value: object, read: frozenset[str]) -> None:
        if variable in read and isinstance(value, str) and "{{" in value:
            message = f"{value!r} is a template, which only plays resolve; give the value itself"
            raise (self.origin / host / variable).error(message)

    def _host(self, name: str) -> InventoryHost:
        variables, says = self._listing.variables[name], self._variables[name]
        for variable, value in variables.items():
            self._check_resolved(name, variable, value, _CONNECTION)
        origin = self.origin / name
        how = origin.convert(AnsibleConnection)
        return InventoryHost(
            name=name,
            address=says.address or how.host or name,
            ssh_host=how.host or name,
            ssh_port=how.port,
            ssh_user=says.user,
            ansible_user=how.user,
            ssh_key=how.key,
            ssh_args=how.arguments(origin),
            home=says.home,
            work=says.work or f"{says.state}/work",
            slots=says.slots,
            rack=says.rack,
            node_class=says.node_class,
            groups=self._listing.groups(name),
            variables=variables,
            gathered=self._gathered(name),
        )

    def _gathered(self, name: str) -> Gathered | None:
        path = self.folder / FACTS / f"{name}.json"
        return read(path).convert(Gathered) if path.is_file() else None


def _machine(says: Variables, gathered: Gathered | None) -> dict[str, Any]:
    """Return a host's hardware by the keys of a cluster file; None means unknown."""
    emulated = says.emulate
    sockets, cores, ghz = None, says.cores, None
    memory_mb: float | None = None
    if emulated is not None:
        sockets, cores = emulated.sockets, says.cores or emulated.cores
        ghz, memory_mb = emulated.ghz, emulated.memory_mb
    if gathered is not None:
        sockets, cores, ghz = gathered.sockets, gathered.cores, gathered.ghz
        memory_mb = memory_mb or gathered.ram_gb * 1024
    # Sockets may have different numbers of online cores; the computing power uses only the total.
    if cores is not None and cores % (sockets or 1):
        sockets = 1
    share = says.cpu_share or (cores * emulated.share_per_core if cores and emulated else None)
    return {
        "sockets": sockets,
        "cores": None if cores is None else cores // (sockets or 1),
        "cpu": None if share is None else share * 100,
        # Demands are in cores of the node, as it presents them; loads are measured in cores of this host.
        "supervisor_cpu": cores * 100 if cores and emulated and not says.cpu_share else None,
        "memory_mb": says.memory_mb or memory_mb,
        "ghz": says.max_ghz or ghz,
        "facts": to_plain(_facts(says, gathered)) if gathered else None,
        "frequencies_hz": gathered.frequencies_hz if gathered else None,
    }


def _facts(says: Variables, gathered: Gathered) -> Facts:
    return Facts(
        bogomips=gathered.bogomips,
        isa=gathered.isa,
        measured_flops_per_cycle=gathered.measured_flops_per_cycle,
        measured_flops_error=gathered.measured_flops_error,
        # A clock that the inventory limits is not the measured one.
        ghz_error=None if says.max_ghz else gathered.ghz_error,
    )


_CONNECTION = frozenset(AnsibleConnection.__struct_fields__)
_READ = frozenset(PREFIX + field for field in Variables.__struct_fields__) | {PREFIX + "class"}


class ClusterOfHosts(Document):
    """Contents of a cluster file built from hosts; errors name the host, and where its variable is set."""

    def __init__(self, hosts: Hosts) -> None:
        super().__init__(str(hosts.path), {"nodes": [hosts.entry(host) for host in hosts.workers]}, {})
        self._hosts = hosts

    def where(self, steps: Steps) -> str:
        return self._variable(steps).where

    def named(self, steps: Steps) -> str:
        return str(self._variable(steps))

    def _variable(self, steps: Steps) -> Origin:
        if len(steps) < 2 or not isinstance(steps[1], int):
            return self._hosts.origin
        host = self._hosts.workers[steps[1]]
        if len(steps) == 2 or steps[2] == "id":
            return self._hosts.origin / host.name
        variable = f"{PREFIX}{steps[2]}"
        if variable == PREFIX + "address" and variable not in host.variables:
            variable = next((name for name in HOST_NAMES if name in host.variables), "ansible_host")
        return reduce(Origin.__truediv__, steps[3:], self._hosts.origin / host.name / variable)


def load_hosts(path: str | Path, meanwhile: Callable[[], object] = lambda: None) -> Hosts:
    """Read an Ansible inventory, a file or a folder; `meanwhile` is called while Ansible runs.

    Raises:
        InputError: it is not an inventory, or is invalid; the message names file, line, host and variable.
        UnfitError: Ansible is missing.
    """
    return Hosts(ansible_inventory(Path(path), meanwhile))
