"""The cluster of a campaign: found by name or path, and an address of this host for every node."""

import ipaddress
import socket
from pathlib import Path

from msgspec.structs import replace

from inventory.cluster import Cluster, Node, cluster_of
from inventory.documents import read
from inventory.errors import InputError, UnfitError
from inventory.finding import find_inventory


def cluster_named(inventory: str, beside: Path) -> Cluster:
    """Read the cluster file, or the shipped inventory, called `inventory`; a relative path may start from `beside`.

    Raises:
        InputError: there is none, or it is wrong.
    """
    near = beside / inventory
    return cluster_of(read(near if near.is_file() else find_inventory(inventory)))


def with_addresses(cluster: Cluster) -> Cluster:
    """The cluster with a data address for every node; node i (from 1) without one gets 127.0.0.(i + 1).

    Raises:
        InputError: an address is no address, or names every interface at once.
    """
    nodes = []
    for number, node in enumerate(cluster.nodes, 1):
        address = node.address or str(ipaddress.IPv4Address("127.0.0.1") + number)
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            raise InputError(f"node {node.id}: {address!r} is not an IP address") from None
        if parsed.is_unspecified:
            raise InputError(f"node {node.id}: {address} stands for every interface; give the node's own address")
        nodes.append(replace(node, address=address))
    return replace(cluster, nodes=tuple(nodes))


def check_addresses(cluster: Cluster) -> None:
    """Try every available node's address.

    Raises:
        UnfitError: this host cannot bind one.
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
    """The node's data address, after `with_addresses`."""
    if node.address is None:
        raise ValueError(f"node {node.id} has no address")
    return node.address


def _family(node: Node) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(address_of(node)).version == 6 else socket.AF_INET
