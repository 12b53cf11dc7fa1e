"""Cluster of a campaign: find its inventory, and assign a data address to every node."""

import ipaddress
import socket
from pathlib import Path

from msgspec.structs import replace

from agents.protocol.node_folders import plain_name
from inventory.cluster import Cluster, Node
from inventory.documents import Located
from inventory.errors import RunError, UnfitError
from inventory.reading import find_inventory, shipped_inventories


def find_beside(inventory: str, beside: Path) -> Path:
    """Return the file or folder of an inventory; a relative path may be relative to `beside`.

    Raises:
        InputError: there is none.
    """
    near = beside / inventory
    is_near = near.is_file() or (near.is_dir() and inventory not in shipped_inventories())
    return near if is_near else find_inventory(inventory)


def with_addresses(cluster: Located[Cluster]) -> Cluster:
    """Return the cluster with a data address for every node; node i (from 1) without one gets 127.0.0.(i + 1).

    Raises:
        InputError: an address is invalid, unspecified (0.0.0.0), or used by two nodes; a node's
            id is no valid folder name.
    """
    nodes: dict[str, Node] = {}
    for at, node in enumerate(cluster.value.nodes):
        address = node.address or str(ipaddress.IPv4Address("127.0.0.2") + at)
        here = cluster.origin / "nodes" / at
        try:
            plain_name("node id", node.id)
            parsed = ipaddress.ip_address(address)
        except RunError as fault:
            raise (here / "id").error(str(fault)) from None
        except ValueError:
            expected = "workers listen at one, which millrace_address (in a cluster file address) gives"
            raise (here / "address").error(f"{address!r} is not an IP address; {expected}") from None
        if parsed.is_unspecified:
            raise (here / "address").error(f"{address!r} means every interface; give the node's own address")
        if address in nodes:
            hint = "; give both nodes an address" if node.address is None else ""
            raise (here / "address").error(f"{address} is the address of {nodes[address].id!r} already{hint}")
        nodes[address] = replace(node, address=address)
    return replace(cluster.value, nodes=tuple(nodes.values()))


def check_addresses(cluster: Cluster) -> None:
    """Check that this host can bind the address of every available node.

    Raises:
        UnfitError: it cannot.
    """
    for node in cluster.available:
        try:
            with socket.create_server((address_of(node), 0), family=_family(node)):
                pass
        except OSError as fault:
            raise UnfitError(
                f"node {node.id}: its address {node.address} cannot be bound on this host: {fault.strerror}"
            ) from None


def address_of(node: Node) -> str:
    """Return the node's data address, which `with_addresses` has set."""
    if node.address is None:
        raise ValueError(f"node {node.id} has no address")
    return node.address


def _family(node: Node) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(address_of(node)).version == 6 else socket.AF_INET
