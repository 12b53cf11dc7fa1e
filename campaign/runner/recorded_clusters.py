"""Clusters of a campaign in `campaign.json`, with all that is needed to go on wherever their inventory is now.

The path of the inventory is only advice. If it is gone, or the campaign is resumed on another controller, the nodes are
reached as they were at first: an inventory is made from the record, `inventory.json` in the campaign's folder. Facts of
the nodes are always those of the first start, since all runs are of one cluster.
"""

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from analysis.records.conditions import ClusterRecord
from analysis.records.file_types import CampaignRecord
from campaign.agenda.campaign_plan import PlannedCluster
from controller.host.disk import writing
from inventory.ansible_hosts import PREFIX, WORKERS, Hosts, load_hosts
from inventory.atomic_files import replace_file
from inventory.cluster import Cluster, cluster_from_document
from inventory.documents import Document, to_plain
from inventory.errors import InputError, nearest
from inventory.reading import ReadCluster, find_inventory, read_cluster

KEPT = frozenset(
    [
        "ansible_host",
        "ansible_ssh_host",
        "ansible_port",
        "ansible_ssh_port",
        "ansible_user",
        "ansible_ssh_user",
        "ansible_connection",
        "ansible_ssh_private_key_file",
        "ansible_private_key_file",
        "ansible_ssh_common_args",
        "ansible_ssh_extra_args",
        "ansible_ssh_executable",
        "ansible_sftp_executable",
        "ansible_scp_executable",
        "ansible_python_interpreter",
        "ansible_become",
        "ansible_become_method",
        "ansible_become_user",
    ]
)
MAY_HOLD_SECRETS = frozenset({f"{PREFIX}meters"})
"""Variables of Ansible that are recorded, and variables of ours that are not."""

INVENTORY_FILE = "inventory.json"
"""Inventory that is made from the record, in a campaign's folder."""


def cluster_record(planned: PlannedCluster) -> ClusterRecord:
    """Return what `campaign.json` says of a cluster."""
    cluster, hosts = to_plain(planned.cluster), planned.hosts
    if hosts is None:
        return ClusterRecord(cluster=cluster)
    return ClusterRecord(cluster=cluster, inventory=str(hosts.path.absolute()), hosts=_without_secrets(hosts))


def _without_secrets(hosts: Hosts) -> dict[str, dict[str, Any]]:
    """Return node -> the variables with which it is reached and set up, without passwords and meters."""
    return {
        host.name: {
            name: value
            for name, value in host.variables.items()
            if name in KEPT or (name.startswith(PREFIX) and name not in MAY_HOLD_SECRETS)
        }
        for host in hosts.workers
    }


def recorded_clusters(
    folder: Path,
    document: Document,
    record: CampaignRecord,
    inventory: str | None,
    without: Collection[str],
    meanwhile: Callable[[], object],
) -> tuple[dict[str, ReadCluster], Sequence[str]]:
    """Return the clusters of a campaign, by inventory, and messages for the operator.

    Args:
        folder: the campaign's folder.
        document, record: its `campaign.json`.
        inventory: inventory with which the nodes are reached now; None: as recorded.
        without: nodes to leave out; they count as not available.
        meanwhile: called while Ansible reads an inventory.

    Raises:
        InputError: an inventory lacks nodes, or there is no such node to leave out.
    """
    single = {"": ClusterRecord(cluster=record.cluster, inventory=record.inventory, hosts=record.hosts)}
    if inventory is not None and record.clusters:
        raise InputError(f"--inventory: {folder} has several inventories ({', '.join(record.clusters)}); leave it out")
    entries = record.clusters or single
    read = {
        name: cluster_from_document(
            part_of(part_of(part_of(document, "clusters"), name) if name else document, "cluster")
        )
        for name in entries
    }
    known = {node.id for cluster in read.values() for node in cluster.value.nodes}
    for name in without:
        if name not in known:
            raise InputError(f"--without {name}: {folder} has no such node{nearest(name, known)}")
    clusters, notices = {}, []
    for name, each in entries.items():
        cluster, hosts = _left_with(read[name].value, without), None
        if each.inventory is not None:
            path = Path(each.inventory) if inventory is None else find_inventory(inventory)
            if not path.exists():
                notices.append(f"{path}: is gone; the nodes are reached as it said at the first start")
                path = _made_inventory(folder, name, each)
            hosts = load_hosts(path, meanwhile)
            _check_hosts(hosts, cluster)
            if inventory is not None:
                cluster = _with_addresses(cluster, hosts)
        elif inventory is not None:
            _check_file(inventory, cluster)
        clusters[name] = ReadCluster(cluster, read[name].origin, hosts)
    return clusters, notices


def _with_addresses(cluster: Cluster, hosts: Hosts) -> Cluster:
    known = {node.id: hosts.by_name[node.id].address for node in cluster.available}
    nodes = (replace(node, address=known.get(node.id, node.address)) for node in cluster.nodes)
    return replace(cluster, nodes=tuple(nodes))


def _left_with(cluster: Cluster, without: Collection[str]) -> Cluster:
    if not {node.id for node in cluster.available} - set(without):
        raise InputError(f"--without {','.join(without)}: leaves no node")
    return replace(
        cluster,
        nodes=tuple(replace(node, available=False) if node.id in without else node for node in cluster.nodes),
    )


def _made_inventory(folder: Path, name: str, recorded: ClusterRecord) -> Path:
    """Write an Ansible inventory with the recorded hosts, and return its path.

    Raises:
        InputError: the record has none; an earlier version has written it.
    """
    if not recorded.hosts:
        raise InputError(
            f"{recorded.inventory}: is gone, and {folder} does not say how its nodes are reached; where is it now? "
            "--inventory PATH"
        )
    path = folder / (f"inventory-{next(iter(recorded.hosts))}.json" if name else INVENTORY_FILE)
    text = json.dumps({WORKERS: {"hosts": recorded.hosts}}, indent=1)
    with writing(folder):
        replace_file(path, f"{text}\n".encode())
    return path


def _check_hosts(hosts: Hosts, cluster: Cluster) -> None:
    for node in cluster.available:
        if node.id not in hosts.by_name:
            raise InputError(
                f"{hosts.path}: has no host {node.id!r}, which is a node of this campaign"
                f"{nearest(node.id, hosts.by_name)}; name the inventory that has it (--inventory PATH), or leave it "
                f"out (--without {node.id})"
            )


def _check_file(inventory: str, cluster: Cluster) -> None:
    """Check that a cluster file has the recorded nodes, which stay as they were recorded."""
    theirs = {node.id for node in read_cluster(inventory).value.nodes}
    for node in cluster.available:
        if node.id not in theirs:
            raise InputError(
                f"{inventory}: has no node {node.id!r}, which is a node of this campaign{nearest(node.id, theirs)}"
            )


def part_of(document: Document, key: str) -> Document:
    """Return the value of `key`, with its line numbers."""
    if key not in document.data:
        raise document.error((), f"the key {key!r} is missing; the folder of a campaign was expected")
    lines = {steps[1:]: line for steps, line in document.lines.items() if steps[:1] == (key,)}
    return Document(document.source, document.data[key], lines)
