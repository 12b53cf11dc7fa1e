"""Choice of the backend for a cluster: addresses of this host, namespaces of it, or machines over SSH."""

import os

from controller.nodes.backend import Backend, Operator
from controller.nodes.loopback import LoopbackBackend
from inventory.ansible_hosts import Hosts
from inventory.cluster import Cluster

EMULATED = 2
"""Tier of nodes that are namespaces of this host."""


def select_backend(cluster: Cluster, hosts: Hosts | None, owner: str, operator: Operator) -> Backend:
    """How the nodes of `cluster` are reached: over SSH when they are `hosts` of an Ansible inventory, emulated or not.

    Args:
        cluster: with addresses.
        hosts: the inventory that it was made from, if it was.
        owner: the campaign, in words for others.
        operator: brings an emulated cluster up.
    """
    if hosts is None:
        return LoopbackBackend(cluster)
    # What they import takes a second to load, which a cluster on this host has no use for.
    if hosts.tier == EMULATED and os.geteuid() != 0:
        from controller.emulation.links_backend import LinksBackend

        return LinksBackend(cluster, hosts, operator)
    from controller.emulation.backend import EmulatedBackend
    from controller.ssh.backend import SshBackend

    if hosts.tier == EMULATED:
        return EmulatedBackend(cluster, hosts, owner, operator)
    return SshBackend(cluster, hosts, owner)
