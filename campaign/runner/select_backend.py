"""Selection of the backend for a cluster: addresses of this host, network namespaces, or machines over SSH."""

import os

from controller.nodes.backend import Backend, Operator
from controller.nodes.loopback import LoopbackBackend
from inventory.ansible_hosts import Hosts
from inventory.cluster import Cluster

EMULATED = 2
"""Tier of nodes that are namespaces of this host."""


def select_backend(cluster: Cluster, hosts: Hosts | None, owner: str, operator: Operator) -> Backend:
    """Return the backend of `cluster`: over SSH if it comes from an Ansible inventory, emulated or not.

    Args:
        cluster: with addresses.
        hosts: the Ansible inventory of the cluster, if any.
        owner: description of the campaign for other controllers.
        operator: callbacks for backends that bring a cluster up.
    """
    if hosts is None:
        return LoopbackBackend(cluster)
    # Their imports take a second, which a cluster on this host does not need.
    if hosts.tier == EMULATED and os.geteuid() != 0:
        from controller.emulation.links_backend import LinksBackend

        return LinksBackend(cluster, hosts, operator)
    from controller.emulation.backend import EmulatedBackend
    from controller.ssh.backend import SshBackend

    if hosts.tier == EMULATED:
        return EmulatedBackend(cluster, hosts, owner, operator)
    return SshBackend(cluster, hosts, owner)
