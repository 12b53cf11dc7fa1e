"""What an inventory asks of an emulated cluster, and what a cluster that is up says of itself."""

import shlex
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.emulation.folder import KNOWN_HOSTS, clear
from controller.emulation.network import NetworkPlan
from controller.emulation.node_init import SSH_PORT
from controller.host.cgroups import SMALLEST_SHARE
from controller.host.process_identity import ProcessIdentity
from inventory.ansible_hosts import Host, Hosts
from inventory.emulated_machine import Machine
from inventory.energy_model import EnergyModel
from inventory.errors import UnfitError
from inventory.links import Link, requested_links

TIER = 2
"""`millrace_tier` of an inventory whose nodes are namespaces of this host."""

MACHINE = "millrace_emulate"
POWER = "millrace_power"
KEY = "ansible_ssh_private_key_file"
ARGUMENTS = "ansible_ssh_common_args"

_DESCRIPTION = "cluster.json"


class ClusterRequest(Struct, frozen=True):
    """A cluster to bring up.

    Attributes:
        folder: where its keys, logs and description are.
        key: private key for logins; made when it comes up.
        machines: node, by name -> what it stands for; node i, from 1, has the address 10.77.0.i.
        links: those that are limited or delayed.
    """

    folder: str
    key: str
    machines: dict[str, Machine]
    links: tuple[Link, ...]


class Member(Struct, frozen=True):
    """A node that is up.

    Attributes:
        pid: its first process, as this host counts.
        group: name of its control group.
        machine: what it stands for.
    """

    pid: int
    group: str
    machine: Machine


class Origin(Struct, frozen=True):
    """Where a cluster comes from: the process that brought it up, that one's folder of Millrace, and when (UTC)."""

    process: ProcessIdentity
    checkout: str
    since: str

    def __str__(self) -> str:
        return f"up since {self.since}, brought up by process {self.process.pid} from {self.checkout}"


class Description(Struct, frozen=True):
    """A cluster that is up.

    Attributes:
        request: what it was asked to be.
        origin: who asked for it.
        network: names and addresses.
        shaping: what shapes its links.
        keeper: the process that keeps it.
        members: node, by name -> how it is found.
    """

    request: ClusterRequest
    origin: Origin
    network: NetworkPlan
    shaping: str
    keeper: ProcessIdentity
    members: dict[str, Member]

    def __str__(self) -> str:
        return f"the emulated cluster in {self.request.folder} ({self.origin})"

    def write(self) -> None:
        """Put it into the cluster's folder, in one piece."""
        path = Path(self.request.folder) / _DESCRIPTION
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(self)))
        partial.replace(path)


class _Kept(Struct, frozen=True):
    """What every version of Millrace says of a cluster."""

    keeper: ProcessIdentity


def description_in(folder: Path) -> Description | None:
    """The cluster whose folder it is; None when none is up.

    Raises:
        UnfitError: another version of Millrace has brought it up, and describes it in another way.
    """
    path = folder / _DESCRIPTION
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):
        return None
    if not kept.keeper.is_alive():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Description)
    except msgspec.DecodeError as fault:
        raise UnfitError(
            f"{path}: another version of Millrace has brought this cluster up, which process {kept.keeper.pid} keeps "
            f"({fault}); take it down with: millrace clean"
        ) from None


def described(folder: Path) -> str | None:
    """The cluster that is up in a folder, in words, whichever version of Millrace has brought it up."""
    try:
        found = description_in(folder)
    except UnfitError:
        return f"the emulated cluster in {folder} (of another version of Millrace)"
    return None if found is None else str(found)


def abandon(folder: Path) -> None:
    """Remove what a cluster whose keeper was killed has left in its folder; logs stay."""
    with suppress(OSError, msgspec.DecodeError):
        found = msgspec.json.decode((folder / _DESCRIPTION).read_bytes(), type=Description)
        clear(folder, Path(found.request.key))
    forget_description(folder)


def forget_description(folder: Path) -> None:
    """The cluster is going down."""
    (folder / _DESCRIPTION).unlink(missing_ok=True)


def request_of(hosts: Hosts) -> ClusterRequest:
    """What the inventory asks for.

    Raises:
        InputError: a variable is missing or wrong; the message names file, line, host and variable.
    """
    first = hosts.workers[0]
    if first.ssh_key is None or not first.ssh_key.is_absolute():
        raise hosts.document.error((first.name, KEY), "must be an absolute path; the key is made when the cluster is")
    folder = first.ssh_key.parent
    machines: dict[str, Machine] = {}
    for host in hosts.workers:
        _check_way(hosts, host, first)
        machines[host.name] = _machine(hosts, host)
    request = ClusterRequest(str(folder), str(first.ssh_key), machines, requested_links(hosts.document, list(machines)))
    network = NetworkPlan("mr", tuple(machines))
    for host in hosts.workers:
        address = network.endpoint(host.name).address
        if host.ssh_host != address:
            message = f"{host.ssh_host}: the address of this node is {address}: they are numbered in their order"
            raise hosts.document.error((host.name, "ansible_host"), message)
    return request


def _check_way(hosts: Hosts, host: Host, first: Host) -> None:
    """All nodes are reached with one key and one file of known hosts, as root, at the usual port."""
    if host.ssh_key != first.ssh_key:
        raise hosts.document.error((host.name, KEY), f"{host.ssh_key}: {first.name} has another, {first.ssh_key}")
    if host.ssh_port not in (None, SSH_PORT):
        raise hosts.document.error((host.name, "ansible_port"), f"{host.ssh_port}: an emulated node has {SSH_PORT}")
    user = host.variables.get("ansible_user")
    if user != "root":
        raise hosts.document.error((host.name, "ansible_user"), f"{user}: Ansible is root on an emulated node")
    known = f"UserKnownHostsFile={host.ssh_key.parent / KNOWN_HOSTS}" if host.ssh_key else ""
    if known not in host.ssh_args:
        given = shlex.join(host.ssh_args) or "nothing"
        raise hosts.document.error((host.name, ARGUMENTS), f"{given}: must hold -o {known}")


def _machine(hosts: Hosts, host: Host) -> Machine:
    if MACHINE not in host.variables:
        raise hosts.document.error((host.name, MACHINE), "is missing; it says which machine the namespace stands for")
    machine = hosts.document.convert(Machine, (host.name, MACHINE))
    if machine.cores % machine.sockets:
        message = f"{machine.cores} cores cannot be spread evenly over {machine.sockets} sockets"
        raise hosts.document.error((host.name, MACHINE, "cores"), message)
    if not (machine.min_ghz or 0) <= machine.ghz <= (machine.turbo_ghz or machine.ghz):
        raise hosts.document.error((host.name, MACHINE, "ghz"), "must lie between min_ghz and turbo_ghz")
    if machine.share_per_core * machine.khz[-1] / machine.top_khz < SMALLEST_SHARE:
        message = f"{machine.share_per_core:g}: at the lowest clock a core is worth {SMALLEST_SHARE:g} at least"
        raise hosts.document.error((host.name, MACHINE, "share_per_core"), message)
    if POWER in host.variables:
        machine = replace(machine, power=hosts.document.convert(EnergyModel, (host.name, POWER)))
    return machine if machine.kind != "emulated" else replace(machine, kind=host.node_class or machine.kind)
