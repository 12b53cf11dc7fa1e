"""Undoing what a crashed campaign left on this host.

Everything is found by what campaigns wrote down (`campaign.state`, `campaign.lock`), and a process is ended only when
its start time or its environment proves that it belongs to a campaign whose controller is gone. What belongs to a
campaign that still runs is left alone.
"""

from dataclasses import dataclass, field

from agents.cpu.control import put_back, told
from agents.cpu.journal import HeldError
from agents.power.host import MeteredHost
from agents.probing import HostFiles
from campaign.emulation.cluster import take_down
from campaign.lock import is_held
from campaign.state import Owner, exclusive, read_state, runtime_folder, undo
from inventory.errors import UnfitError


@dataclass
class Cleaning:
    """What `clean` did, in words.

    Attributes:
        done: what it ended or removed.
        failed: what it could not end or remove.
        running: campaigns of this user that still run and were left alone.
    """

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)


def idle_clusters() -> list[Owner]:
    """Owners of emulated clusters of this user that are up while no campaign runs on this host.

    Raises:
        UnfitError: the user's folder for state files is not safe to use.
    """
    folder = runtime_folder()
    with exclusive(folder):
        if any(is_held(path) for path in folder.glob("cluster-*.lock")):
            return []
        records = [read_state(path) for path in sorted(folder.glob("campaign-*.jsonl"))]
    # Only the process that keeps a cluster makes control groups.
    kept = [record.header.owner for record in records if record and any(entry.group for entry in record.entries)]
    return [owner for owner in kept if owner.process.is_alive()]


def clean_all() -> Cleaning:
    """Take down idle emulated clusters, then do as `clean`.

    Raises:
        UnfitError: the user's folder for state files is not safe to use.
        RunError: a cluster cannot be taken down.
    """
    done = []
    for owner in idle_clusters():
        take_down(owner.process)
        done.append(f"emulated cluster in {owner.campaign}, since {owner.since}")
    outcome = clean()
    outcome.done[:0] = done
    return outcome


def clean(host: HostFiles | None = None) -> Cleaning:
    """Undo what dead campaigns of this user left on this host; doing it twice changes nothing more.

    Args:
        host: the host whose CPU settings are put back; this one unless given.

    Raises:
        UnfitError: the user's folder for state files is not safe to use.
    """
    folder = runtime_folder()
    outcome = Cleaning()
    with exclusive(folder):
        for path in sorted(folder.glob("campaign-*.jsonl")):
            record = read_state(path)
            if record is None:
                # It appears under `exclusive`, so that this one was cut short by a crash before anything was started.
                path.unlink()
                outcome.done.append(f"state file {path} (without a readable first line)")
                continue
            owner = record.header.owner
            if owner.process.is_alive():
                outcome.running.append(str(owner))
            elif owner.process.is_foreign():
                outcome.running.append(f"{owner} (in another pid namespace: cannot be judged from here)")
            else:
                done, failed = undo(record)
                outcome.done += done
                outcome.failed += failed
                if not failed:
                    outcome.done.append(f"state file {path} ({owner})")
        for path in sorted(folder.glob("cluster-*.lock")):
            if not is_held(path):
                path.unlink()
                outcome.done.append(f"lock file {path}")
    # Last: the guardian of an agent that has just been ended is at work by then.
    _put_back_cpus(host or MeteredHost.here(), outcome)
    return outcome


def _put_back_cpus(host: HostFiles, outcome: Cleaning) -> None:
    try:
        answer = put_back(host, "millrace clean")
    except HeldError as fault:
        outcome.running.append(f"{fault.holder} (it has set this host's CPUs)")
    except UnfitError as fault:
        outcome.failed.append(str(fault))
    else:
        outcome.done += [f"CPU setting /{s.path} ({s.before} is {s.got} again)" for s in answer.settings if s.ok]
        if not answer.ok:
            outcome.failed.append(told(answer))
