"""Emulated cluster as requested by an inventory, its folder, and the description of a running one (`cluster.json`).

Keys, programs and sockets in the folder are removed with the cluster. Logs stay until the next cluster in the folder or
until `millrace clean`, which finds the folder by a link in the user's state folder.
"""

import hashlib
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.emulation.network import NetworkPlan
from controller.emulation.node_init import SSH_PORT
from controller.emulation.programs import FILES, KNOWN_HOSTS
from controller.host.cgroups import SMALLEST_SHARE
from controller.host.process_identity import ProcessIdentity
from inventory.ansible_hosts import Hosts, InventoryHost
from inventory.atomic_files import replace_file
from inventory.emulation import EmulatedMachine, LinkSettings, requested_links
from inventory.errors import UnfitError
from inventory.reading import read_hosts
from inventory.values import EnergyModel

DAEMON_LOG, RELAY_LOG = "daemon.log", "relay.log"
LOGS = (DAEMON_LOG, RELAY_LOG)

NODES = "nodes"

_LINK = "emulated-"

TIER = 2
"""`millrace_tier` of an inventory whose nodes are namespaces of this host."""

MACHINE = "millrace_emulate"
POWER = "millrace_power"
KEY = "ansible_ssh_private_key_file"
ARGUMENTS = "ansible_ssh_common_args"

_DESCRIPTION = "cluster.json"


def in_folder(folder: str | Path) -> str:
    """Return the name of a cluster in messages."""
    return f"the emulated cluster in {folder}"


def clear(folder: Path, key: Path) -> None:
    """Remove all files that belong to a running cluster; keep the logs.

    Args:
        folder: folder of the cluster.
        key: login key of its nodes.
    """
    shutil.rmtree(folder / NODES, ignore_errors=True)
    for path in folder.glob("*"):
        if path.is_socket() or path.name in FILES or path in (key, public_part(key)):
            path.unlink(missing_ok=True)


def public_part(key: Path) -> Path:
    """Return the file of a key's public part."""
    return key.with_name(key.name + ".pub")


def remember(folder: Path, states: Path) -> None:
    """Link to the folder from the state folder, for `millrace clean`."""
    link = _link(folder, states)
    link.unlink(missing_ok=True)
    link.symlink_to(folder)


def remembered(states: Path) -> Iterator[Path]:
    """Yield the folders of all clusters on this host whose logs have not been removed."""
    for link in sorted(states.glob(f"{_LINK}*")):
        yield link.readlink()


def logs_in(folder: Path) -> list[Path]:
    """Return the logs in the folder of a cluster."""
    return [path for path in (folder / name for name in LOGS) if path.is_file()]


def forget_cluster(folder: Path, states: Path) -> None:
    """Remove the logs of a stopped cluster, the link to its folder, and the folder if it is empty."""
    for path in logs_in(folder):
        path.unlink()
    with suppress(OSError):
        folder.rmdir()
    _link(folder, states).unlink(missing_ok=True)


def _link(folder: Path, states: Path) -> Path:
    return states / f"{_LINK}{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


class ClusterRequest(Struct, frozen=True):
    """A cluster to start.

    Attributes:
        folder: folder of its keys, logs and description.
        key: private key for logins, created at the start.
        machines: node -> the machine that it emulates; node i, from 1, has the address 10.77.0.i.
        links: links with a limit or a delay.
    """

    folder: str
    key: str
    machines: dict[str, EmulatedMachine]
    links: tuple[LinkSettings, ...]


class RunningNode(Struct, frozen=True):
    """A running node.

    Attributes:
        pid: pid of its init process on this host.
        group: name of its control group.
        machine: the machine that it emulates.
    """

    pid: int
    group: str
    machine: EmulatedMachine

    @property
    def files(self) -> Path:
        """Root of the node's files, seen from outside."""
        return Path("/proc") / str(self.pid) / "root"


class ClusterOrigin(Struct, frozen=True):
    """Origin of a cluster: the process that started it, that process's Millrace folder, and the time (UTC)."""

    process: ProcessIdentity
    checkout: str
    since: str

    def __str__(self) -> str:
        return f"up since {self.since}, brought up by process {self.process.pid} from {self.checkout}"


class Description(Struct, frozen=True):
    """A running cluster.

    Attributes:
        request: the request that it was started with.
        origin: the process that started it.
        network: names and addresses.
        shaping: how its links are shaped.
        daemon: the emulation daemon.
        members: nodes by name.
    """

    request: ClusterRequest
    origin: ClusterOrigin
    network: NetworkPlan
    shaping: str
    daemon: ProcessIdentity
    members: dict[str, RunningNode]

    def __str__(self) -> str:
        return f"{in_folder(self.request.folder)} ({self.origin})"

    def write(self) -> None:
        """Write it to the cluster's folder atomically."""
        path = Path(self.request.folder) / _DESCRIPTION
        replace_file(path, msgspec.json.format(msgspec.json.encode(self)))


class _DaemonOnly(Struct, frozen=True):
    """The part of a description that is the same in every version of Millrace."""

    daemon: ProcessIdentity


def description_in(folder: Path) -> Description | None:
    """Return the running cluster of a folder; None without one.

    Raises:
        UnfitError: another version of Millrace, with another form of description, has started it.
    """
    path = folder / _DESCRIPTION
    try:
        running = msgspec.json.decode(path.read_bytes(), type=_DaemonOnly)
    except (OSError, msgspec.DecodeError):
        return None
    if not running.daemon.is_alive():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Description)
    except msgspec.DecodeError as fault:
        raise UnfitError(
            f"{path}: another version of Millrace has brought this cluster up, which process {running.daemon.pid} "
            f"keeps ({fault}); take it down with: millrace clean {folder}"
        ) from None


def cluster_text(folder: Path) -> str | None:
    """Return a text that describes the running cluster of a folder, of any version of Millrace; None without one."""
    try:
        description = description_in(folder)
    except UnfitError:
        return f"{in_folder(folder)} (of another version of Millrace)"
    return None if description is None else str(description)


def abandon(folder: Path) -> None:
    """Remove what a cluster whose daemon was killed has left in its folder; keep the logs."""
    with suppress(OSError, msgspec.DecodeError):
        description = msgspec.json.decode((folder / _DESCRIPTION).read_bytes(), type=Description)
        clear(folder, Path(description.request.key))
    forget_description(folder)


def forget_description(folder: Path) -> None:
    """Remove the description of a cluster that is stopping."""
    (folder / _DESCRIPTION).unlink(missing_ok=True)


def request_of(hosts: Hosts) -> ClusterRequest:
    """Return the cluster that an inventory requests.

    Raises:
        InputError: a variable is missing or wrong; the message names file, line, host and variable.
    """
    first = hosts.workers[0]
    if first.ssh_key is None or not first.ssh_key.is_absolute():
        raise (hosts.origin / first.name / KEY).error("must be an absolute path; the key is made when the cluster is")
    folder = first.ssh_key.parent
    machines: dict[str, EmulatedMachine] = {}
    for host in hosts.workers:
        _check_way(hosts, host, first)
        machines[host.name] = _machine(hosts, host)
    request = ClusterRequest(str(folder), str(first.ssh_key), machines, requested_links(hosts.origin, list(machines)))
    network = NetworkPlan("mr", tuple(machines))
    for host in hosts.workers:
        address = network.endpoint(host.name).address
        if host.ssh_host != address:
            message = f"{host.ssh_host}: the address of this node is {address}: they are numbered in their order"
            raise (hosts.origin / host.name / "ansible_host").error(message)
    return request


def cluster_folder(name_or_path: str) -> Path:
    """Return the folder of an emulated cluster, given by itself or by an inventory.

    Raises:
        InputError: it is neither.
    """
    folder = Path(name_or_path).absolute()
    if (folder / _DESCRIPTION).is_file():
        return folder
    return Path(request_of(read_hosts(name_or_path)).folder)


def nics_of(machines: Mapping[str, EmulatedMachine]) -> dict[str, float]:
    """Return node -> Mbit/s of its interface, for limited interfaces."""
    return {name: machine.nic_mbit for name, machine in machines.items() if machine.nic_mbit is not None}


def _check_way(hosts: Hosts, host: InventoryHost, first: InventoryHost) -> None:
    """Check that a node is reached with the common key and known_hosts file, at the usual port."""
    if host.ssh_key != first.ssh_key:
        raise (hosts.origin / host.name / KEY).error(f"{host.ssh_key}: {first.name} has another, {first.ssh_key}")
    if host.ssh_port not in (None, SSH_PORT):
        raise (hosts.origin / host.name / "ansible_port").error(f"{host.ssh_port}: an emulated node has {SSH_PORT}")
    known = f"UserKnownHostsFile={host.ssh_key.parent / KNOWN_HOSTS}" if host.ssh_key else ""
    if known not in host.ssh_args:
        given = shlex.join(host.ssh_args) or "nothing"
        raise (hosts.origin / host.name / ARGUMENTS).error(f"{given}: must hold -o {known}")


def _machine(hosts: Hosts, host: InventoryHost) -> EmulatedMachine:
    origin = hosts.origin / host.name / MACHINE
    if MACHINE not in host.variables:
        raise origin.error("is missing; it describes the machine that the node emulates")
    machine = origin.convert(EmulatedMachine)
    if machine.cores % machine.sockets:
        message = f"{machine.cores} cores cannot be spread evenly over {machine.sockets} sockets"
        raise (origin / "cores").error(message)
    if not (machine.min_ghz or 0) <= machine.ghz <= (machine.turbo_ghz or machine.ghz):
        raise (origin / "ghz").error("must lie between min_ghz and turbo_ghz")
    if machine.share_per_core * machine.khz[-1] / machine.top_khz < SMALLEST_SHARE:
        message = f"{machine.share_per_core:g}: at the lowest clock a core is worth {SMALLEST_SHARE:g} at least"
        raise (origin / "share_per_core").error(message)
    if POWER in host.variables:
        machine = replace(machine, power=(hosts.origin / host.name / POWER).convert(EnergyModel))
    return machine if machine.kind != "emulated" else replace(machine, kind=host.node_class or machine.kind)
