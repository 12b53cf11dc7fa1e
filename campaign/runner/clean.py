"""Removal of what crashed campaigns left on this host.

Everything is found by the campaigns' own files (`controller.host.ownership`, `controller.host.cluster_lock`). A
process is killed only if its start time or its environment proves that it belongs to a campaign whose controller is
gone. Campaigns that are still running are not touched, and emulated clusters that are up only if they are named.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from agents.cpu.control import describe_unrestored, left_behind, put_back
from agents.cpu.journal import HeldError
from agents.host_files import HostFiles
from agents.power.reader import MeteredHost
from controller.emulation.cluster import lock_of, take_down
from controller.emulation.description import abandon, cluster_text, forget_cluster, in_folder, logs_in, remembered
from controller.host.cluster_lock import LOCKS, InUseError, holders, is_held
from controller.host.disk import state_folder
from controller.host.ownership import Record, exclusive, read_state, undo_campaign
from inventory.errors import UnfitError

NAME = "millrace clean"


@dataclass
class Cleaning:
    """Messages about what `clean` did or would do.

    Attributes:
        done: processes and files that were ended or removed.
        failed: those that could not be ended or removed.
        running: campaigns and clusters of this user that still run and were not touched.
    """

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class UpCluster:
    """An emulated cluster of this user that is up.

    Attributes:
        folder: its folder.
        record: its state file.
        user: who uses it; empty if nobody does.
    """

    folder: Path
    record: Record
    user: str

    def __str__(self) -> str:
        since = self.record.header.owner.since
        return cluster_text(self.folder) or f"{in_folder(self.folder)} (since {since})"


def clusters_up() -> list[UpCluster]:
    """Return the emulated clusters of this user that are up, in use or not.

    Raises:
        UnfitError: the user's folder for state files is not safe to use.
    """
    folder = state_folder()
    with exclusive(folder):
        users = {node: str(holder.owner) for holder in holders() for node in holder.claim.nodes}
        records = [read_state(path) for path in sorted(folder.glob("campaign-*.jsonl"))]
    up = [record for record in records if record and record.is_cluster and record.header.owner.process.is_alive()]
    folders = {record.header.owner.campaign: record for record in up}
    return [UpCluster(Path(name), record, users.get(name, "")) for name, record in sorted(folders.items())]


def clean_all(chosen: Collection[UpCluster] = (), dry_run: bool = False) -> Cleaning:
    """Take down these emulated clusters, unless they are in use; then call `clean`.

    The logs of clusters that are down are removed, too.

    Args:
        chosen: clusters to take down.
        dry_run: only report what would be done.

    Raises:
        UnfitError: the user's folder for state files is not safe to use.
        RunError: a cluster cannot be taken down.
    """
    clusters = Cleaning()
    for cluster in chosen:
        left = [*cluster.record.left(), str(cluster)]
        try:
            with lock_of(str(cluster.folder)):
                if not dry_run:
                    take_down(cluster.record.header.owner.process)
        except InUseError as fault:
            clusters.running.append(f"{cluster}: {fault}")
        else:
            clusters.done += left
    rest = clean(dry_run=dry_run, known=[cluster.record.path for cluster in clusters_up()])
    logs = _clean_folders(state_folder(), dry_run)
    return Cleaning(clusters.done + rest.done + logs, rest.failed, clusters.running + rest.running)


def clean(host: HostFiles | None = None, dry_run: bool = False, known: Collection[Path] = ()) -> Cleaning:
    """Remove what crashed campaigns of this user left on this host; a second call changes nothing.

    Args:
        host: the host whose CPU settings are restored; by default this host.
        dry_run: only report what would be done.
        known: state files of running campaigns that are not reported.

    Raises:
        UnfitError: the user's folder for state files is not safe to use.
    """
    folder = state_folder()
    outcome = Cleaning()
    with exclusive(folder):
        for path in sorted(folder.glob("campaign-*.jsonl")):
            record = read_state(path)
            if record is None:
                # The first line is written under `exclusive`: the campaign crashed before it started anything.
                if not dry_run:
                    path.unlink()
                outcome.done.append(f"state file {path} (without a readable first line)")
                continue
            owner = record.header.owner
            if owner.process.is_alive():
                outcome.running += [] if path in known else [f"{owner} (it still runs)"]
            elif owner.process.is_foreign():
                outcome.running.append(f"{owner} (in another pid namespace: cannot be judged from here)")
            else:
                _undo(record, outcome, dry_run)
        for path in sorted(folder.glob(LOCKS)):
            if not is_held(path):
                if not dry_run:
                    path.unlink()
                outcome.done.append(f"lock file {path}")
    # Last, when the guardians of agents that were just killed are running.
    _restore_cpus(host or MeteredHost.here(), outcome, dry_run)
    return outcome


def _undo(record: Record, outcome: Cleaning, dry_run: bool) -> None:
    done, failed = (record.left(), []) if dry_run else undo_campaign(record)
    outcome.done += done
    outcome.failed += failed
    if not failed:
        outcome.done.append(f"state file {record.path} ({record.header.owner})")


def _clean_folders(state: Path, dry_run: bool) -> list[str]:
    """Remove the logs of clusters that are down; of killed clusters, the keys too."""
    log_lines = []
    for folder in remembered(state):
        if cluster_text(folder) is None:
            log_lines += [f"log {path}" for path in logs_in(folder)]
            if not dry_run:
                abandon(folder)
                forget_cluster(folder, state)
    return log_lines


def _restore_cpus(host: HostFiles, outcome: Cleaning, dry_run: bool) -> None:
    try:
        if dry_run:
            journal = left_behind(host, NAME)
            outcome.done += [f"CPU settings of this host, changed by {journal.owner}"] if journal else []
            return
        answer = put_back(host, NAME)
    except HeldError as fault:
        outcome.running.append(f"{fault.holder} (it has set this host's CPUs)")
    except UnfitError as fault:
        outcome.failed.append(str(fault))
    else:
        outcome.done += [f"CPU setting /{s.path} ({s.before} is {s.got} again)" for s in answer.settings if s.ok]
        if not answer.ok:
            outcome.failed.append(describe_unrestored(answer))
