"""How a campaign reaches the nodes of its cluster: on addresses of this host, or over SSH. It is decided here only."""

import os

from controller.nodes.backend import Reach
from controller.nodes.loopback import LoopbackReach
from inventory.ansible_hosts import Hosts
from inventory.cluster import Cluster

EMULATED = 2
"""Tier of nodes that are namespaces of this host."""


def reach_of(cluster: Cluster, hosts: Hosts | None, owner: str) -> Reach:
    """How the nodes of `cluster` are reached: over SSH when they are `hosts` of an Ansible inventory, emulated or not.

    Args:
        cluster: with addresses.
        hosts: the inventory that it was made from, if it was.
        owner: the campaign, in words for others.
    """
    if hosts is None:
        return LoopbackReach(cluster)
    # What they import takes a second to load, which a cluster on this host has no use for.
    if hosts.tier == EMULATED and os.geteuid() != 0:
        from controller.emulation.links_backend import LinksReach

        return LinksReach(cluster, hosts)
    from controller.emulation.backend import EmulatedReach
    from controller.ssh.backend import SshReach

    return (EmulatedReach if hosts.tier == EMULATED else SshReach)(cluster, hosts, owner)
