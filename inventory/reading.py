"""Cluster from a cluster file or an Ansible inventory, found by path or by the name of a shipped inventory.

`millrace calibrate` writes one file per node beside the inventory. A node without `power` in the inventory gets the
model of its calibration, or that of another node of its class. The meter lag is taken only from its own calibration.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from inventory.ansible_hosts import GENERATORS, Hosts
from inventory.ansible_listing import FACTS, ansible_inventory, listing_options
from inventory.cluster import Cluster, NetworkLink, Node, cluster_from_document
from inventory.documents import Document, Located, read
from inventory.emulation import requested_links
from inventory.errors import InputError, MillraceError, nearest
from inventory.foreign import printable
from inventory.values import EnergyModel, MeterLag

SHIPPED = Path(__file__).parent


def shipped_inventories() -> dict[str, Path]:
    """Return name -> file of the inventories shipped with Millrace."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yml"))}


def find_inventory(name_or_path: str) -> Path:
    """Return the path for `name_or_path`: a file, else the shipped inventory of that name, else a folder.

    Raises:
        InputError: none of these exists.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    shipped = shipped_inventories()
    if name_or_path in shipped:
        return shipped[name_or_path]
    if path.is_dir():
        return path
    hint = nearest(name_or_path, shipped)
    name = printable(name_or_path)
    raise InputError(f"{name}: there is no such file or folder, and no inventory of that name{hint}")


KEY = "nodes"
"""Key of a cluster file that an Ansible inventory has only as the name of a group."""

_TEXT = {".yml", ".yaml", ".json"}
_OF_GROUPS = {"hosts", "children", "vars"}


@dataclass(frozen=True)
class ReadCluster(Located[Cluster]):
    """A cluster and its origin, with the hosts of its Ansible inventory; None for a cluster file."""

    hosts: Hosts | None = None


def read_cluster(name_or_path: str | Path, meanwhile: Callable[[], object] = lambda: None) -> ReadCluster:
    """Return the cluster of a cluster file, or that of the workers of an Ansible inventory.

    A mapping with the key `nodes` is a cluster file; anything else is what Ansible reads, such as INI or a folder.

    Args:
        name_or_path: name or path of an inventory.
        meanwhile: called while Ansible runs, if it is needed.

    Raises:
        InputError: it does not exist, cannot be read, or is invalid.
        UnfitError: Ansible is needed and missing.
    """
    path = find_inventory(str(name_or_path))
    description = _document_or_hosts(path, meanwhile)
    hosts = description if isinstance(description, Hosts) else None
    cluster = cluster_from_document(description.cluster_document if isinstance(description, Hosts) else description)
    return ReadCluster(with_calibrations(cluster.value, path), cluster.origin, hosts)


def read_hosts(name_or_path: str | Path, options: Sequence[str] = ()) -> Hosts:
    """Return the hosts of an Ansible inventory.

    Args:
        name_or_path: name or path of an inventory.
        options: options of `ansible-playbook`; those that concern the inventory are used.

    Raises:
        InputError: it does not exist, or cannot be read; a cluster file has no connection data.
        UnfitError: Ansible is missing.
    """
    path = find_inventory(str(name_or_path))
    description = _document_or_hosts(path, options=listing_options(options))
    if isinstance(description, Hosts):
        return description
    cluster_from_document(description)  # a file that is neither has its own error
    raise InputError(f"{path}: is a cluster file, which does not say how hosts are reached; give an Ansible inventory")


def _document_or_hosts(
    path: Path, meanwhile: Callable[[], object] = lambda: None, options: Sequence[str] = ()
) -> Document | Hosts:
    """Return a cluster file, or the hosts of anything else that Ansible reads.

    A file that is neither, but looks like a cluster file, is returned as one, for the errors that it has as such.
    """
    document: Document | None = None
    fault: InputError | None = None
    if path.is_file():
        try:
            document = read(path)
        except InputError as unreadable:  # INI, a script
            fault = unreadable
    contents = None if document is None else document.data
    has_groups = isinstance(contents, dict) and any(map(_is_group, contents.values()))
    if document is not None and isinstance(contents, dict) and KEY in contents and not has_groups:
        return document
    try:
        listed = ansible_inventory(path, meanwhile, options)
    except MillraceError:
        if has_groups:
            raise
        if fault is not None and path.suffix in _TEXT:
            raise fault from None
        # More likely with a misspelt `nodes` than an inventory without groups.
        if document is not None and (isinstance(contents, dict) or path.suffix in _TEXT):
            return document
        raise
    return Hosts(listed)


def _is_group(value: Any) -> bool:
    return isinstance(value, dict) and bool(_OF_GROUPS & set(value))


FOLDER = "power"


class CalibratedPart(Struct, frozen=True, kw_only=True):
    """The part of such a file that is read here.

    Attributes:
        node, node_class: the node, and its class, if any.
        power: the energy model.
        meter_lag: lag of its meter; None for a meter without lag, or with an unknown one.
    """

    node: str
    node_class: str | None = None
    power: EnergyModel
    meter_lag: MeterLag | None = None


EMULATED = 2
"""Tier of emulated nodes."""


class MeasuredLink(Struct, frozen=True):
    """The part of a result of `millrace verify --json` that is read here."""

    node: str
    to: str | None
    what: str
    got: float | str | bool | None


class VerifiedLinks(Struct, frozen=True):
    """The part of that document that is read here."""

    checks: tuple[MeasuredLink, ...]


def with_links(read_cluster: ReadCluster) -> ReadCluster:
    """Return the cluster of an Ansible inventory with its links, as measured, else as `millrace_links` requests them.

    A measured round trip counts half in each direction. Emulated nodes have no delay where none is requested. Clusters
    that have links, or no inventory, stay as they are.

    Raises:
        InputError: `millrace_links` is invalid, or the file of measured links is.
    """
    hosts, cluster = read_cluster.hosts, read_cluster.value
    if hosts is None or cluster.network.links:
        return read_cluster
    link_of: dict[tuple[str, str], NetworkLink] = {}
    if hosts.tier == EMULATED:
        link_of = {(a.id, b.id): NetworkLink(a.id, b.id, 0.0) for a, b in permutations(cluster.nodes, 2)}
    shaped = dict.fromkeys(host.name for host in (*hosts.workers, *hosts.members(GENERATORS)))
    for asked in requested_links(hosts.origin, list(shaped)):
        pair = asked.sender, asked.receiver
        if set(pair) <= set(cluster.by_id):
            link_of[pair] = NetworkLink(*pair, asked.delay_ms, asked.rate_mbit)
    file = hosts.folder / FACTS / "links" / f"{hosts.path.stem}.json"
    if file.is_file():
        for check in read(file).convert(VerifiedLinks).checks:
            if check.to in cluster.by_id and check.node in cluster.by_id and isinstance(check.got, float):
                pair = check.node, check.to
                link = link_of.get(pair, NetworkLink(*pair))
                if check.what == "rtt":
                    link = replace(link, delay_ms=check.got / 2)
                elif check.what == "link" and check.got > 0:
                    link = replace(link, rate_mbit=check.got)
                link_of[pair] = link
    network = replace(cluster.network, links=tuple(link_of.values()))
    return ReadCluster(replace(cluster, network=network), read_cluster.origin, hosts)


def folder_of(inventory: Path) -> Path:
    """Return the folder of the calibrations of an inventory's nodes."""
    around = inventory if inventory.is_dir() else inventory.parent
    return around / FACTS / FOLDER / inventory.stem


def calibrations(inventory: Path) -> dict[str, CalibratedPart]:
    """Return node -> calibration.

    Raises:
        InputError: a file is not a calibration.
    """
    parts = (read(path).convert(CalibratedPart) for path in sorted(folder_of(inventory).glob("*.json")))
    return {each.node: each for each in parts}


def with_calibrations(cluster: Cluster, inventory: Path) -> Cluster:
    """Return the same cluster with `power` and `meter_lag` filled in from calibrations.

    Raises:
        InputError: see `calibrations`.
    """
    parts = calibrations(inventory)
    return replace(cluster, nodes=tuple(_completed(node, parts) for node in cluster.nodes)) if parts else cluster


def _completed(node: Node, parts: Mapping[str, CalibratedPart]) -> Node:
    own = parts.get(node.id)
    of_class = [each for each in parts.values() if each.node_class and each.node_class == node.node_class]
    model = own or (of_class[0] if of_class else None)
    power = model.power if node.power is None and model is not None else node.power
    meter_lag = own.meter_lag if node.meter_lag is None and own is not None else node.meter_lag
    return replace(node, power=power, meter_lag=meter_lag)
