"""Undoing what a crashed campaign left on this host.

Everything is found by what campaigns wrote down (`campaign.state`, `campaign.lock`), and a process is ended only when
its start time or its environment proves that it belongs to a campaign whose controller is gone. What belongs to a
campaign that still runs is left alone.
"""

from dataclasses import dataclass, field

from campaign.lock import is_held
from campaign.state import exclusive, read_state, runtime_folder, undo


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


def clean() -> Cleaning:
    """Undo what dead campaigns of this user left on this host; doing it twice changes nothing more.

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
    return outcome
