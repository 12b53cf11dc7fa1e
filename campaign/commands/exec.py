"""`millrace exec`: run a command on one node."""

import asyncio
import subprocess
from collections.abc import Collection, Sequence

import click

from inventory.ansible_hosts import ClusterOfHosts
from inventory.cluster import cluster_of
from inventory.errors import InputError, nearest
from inventory.reading import read_cluster

EXAMPLE = """\b
Example:
  millrace exec lab.yml n1 -- uname -r
"""

SIGNALLED = 128


@click.command(epilog=EXAMPLE)
@click.argument("inventory")
@click.argument("node")
@click.argument("command_", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(inventory: str, node: str, command_: Sequence[str]) -> int:
    """Run a command on one node of an inventory.

    Arguments, input, output and exit status are passed on unchanged. The command runs on NODE of INVENTORY as
    `millrace_user`, the user of campaigns. Nodes of a cluster file are this host. Nodes of an emulated cluster can be
    reached while the cluster is up.
    """
    document = read_cluster(inventory)
    if isinstance(document, ClusterOfHosts):
        hosts = document.hosts.by_name
        _check(inventory, node, hosts)
        from controller.emulation.lifecycle import inside_network_of
        from controller.ssh.execute import execute

        with inside_network_of(document.hosts):
            return asyncio.run(execute(hosts[node], command_))
    _check(inventory, node, cluster_of(document).by_id)
    try:
        status = subprocess.run(command_, check=False).returncode
    except OSError as fault:
        raise InputError(f"{command_[0]}: {fault.strerror}") from None
    return status if status >= 0 else SIGNALLED - status


def _check(inventory: str, node: str, nodes: Collection[str]) -> None:
    if node not in nodes:
        raise InputError(f"{inventory}: has no node {node!r}{nearest(node, nodes)}")
