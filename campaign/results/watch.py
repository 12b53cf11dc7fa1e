"""A campaign as seen from outside: which one is meant, what its `live.json` says, and whether that still holds."""

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from campaign.results.live_file import FAILING, FINISHED, INTERRUPTED, LIVE_FILE, REPORTING, LiveContent
from campaign.results.result_store import CAMPAIGN_FILE
from controller.host.cleanup_log import Owner, read_state
from controller.host.process_identity import ProcessIdentity, boot_id
from controller.host.state_folder import find_state_folder
from inventory.errors import InputError
from inventory.foreign import printable, printable_all

FRESH_S = 5.0
"""The file is replaced every second; older than this, something is wrong."""


class CampaignCondition(Enum):
    """What is the matter with a campaign."""

    PREPARING = "preparing"  # it runs and has not said anything yet
    RUNNING = "running"
    SILENT = "silent"  # it says nothing new, and may still run
    DIED = "died"
    ENDED = "ended"


class Watched(NamedTuple):
    """A campaign at one moment: its folder, its `live.json` (None before the first one), and how old that is."""

    folder: Path
    condition: CampaignCondition
    live: LiveContent | None
    age_s: float


def campaign_meant(folder: Path | None) -> Path:
    """The campaign's folder: the given one (`latest` is understood), else the one that runs, else the newest.

    Raises:
        InputError: there is none, or several run and none is given.
    """
    if folder is not None:
        return find_campaign(folder)
    running = sorted({owner.campaign: owner for owner in running_campaigns()}.items())
    if len(running) > 1:
        listed = "".join(f"\n  {printable(path)}" for path, _ in running)
        raise InputError(f"top: several campaigns run; give the folder of one of them:{listed}")
    if running:
        return Path(running[0][0])
    try:
        return find_campaign(LATEST)
    except InputError:
        raise InputError(
            "top: no campaign of this user runs on this machine, and there is none below results/; "
            f"give the folder that holds {LIVE_FILE}"
        ) from None


def running_campaigns() -> list[Owner]:
    """This user's campaigns that run on this machine, from their state files; clusters have such files, too."""
    owners = []
    for path in find_state_folder().glob("campaign-*.jsonl"):
        # A campaign may end while it is looked at.
        with suppress(FileNotFoundError):
            record = read_state(path)
            if record is not None and not record.is_cluster and record.header.owner.process.is_alive():
                owners.append(record.header.owner)
    return owners


def look_at(folder: Path) -> Watched:
    """What a campaign does now.

    Raises:
        InputError: the folder holds no campaign, or its `live.json` is none.
    """
    live = _read(folder)
    owner = next((o for o in running_campaigns() if Path(o.campaign).resolve() == folder.resolve()), None)
    process = None if live is None else msgspec.convert(live["process"], ProcessIdentity)
    if owner is not None and owner.process != process:
        return Watched(folder, CampaignCondition.PREPARING, None, 0.0)
    if live is None or process is None:
        raise _no_campaign(folder)
    age_s = max(0.0, time.time() - datetime.fromisoformat(live["updated_utc"]).timestamp())
    return Watched(folder, _condition(live, process, age_s), live, age_s)


def _condition(live: LiveContent, process: ProcessIdentity, age_s: float) -> CampaignCondition:
    if live["stage"] in (FINISHED, INTERRUPTED, FAILING):
        return CampaignCondition.ENDED
    # While the report is made the file rests.
    if live["stage"] != REPORTING and age_s <= FRESH_S:
        return CampaignCondition.RUNNING
    if process.is_alive():
        return CampaignCondition.RUNNING if live["stage"] == REPORTING else CampaignCondition.SILENT
    elsewhere = process.boot != boot_id() or process.is_foreign()
    return CampaignCondition.SILENT if elsewhere else CampaignCondition.DIED


def _read(folder: Path) -> LiveContent | None:
    path = folder / LIVE_FILE
    try:
        live = printable_all(json.loads(path.read_text()))
        msgspec.convert(live["process"], ProcessIdentity)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError, msgspec.ValidationError) as fault:
        raise InputError(f"{path}: cannot be read as a campaign's {LIVE_FILE}: {fault}") from None
    return live  # type: ignore[no-any-return]  # what JSON holds has no type


def _no_campaign(folder: Path) -> InputError:
    if (folder / CAMPAIGN_FILE).is_file():
        return InputError(f"{folder}: the campaign has left no {LIVE_FILE}")
    below = [path for path in (folder / LATEST, *sorted(folder.glob("*/latest"))) if (path / LIVE_FILE).is_file()]
    hint = f"; did you mean {str(below[0])!r}?" if below else ""
    return InputError(f"{folder}: holds no {LIVE_FILE}; the folder of a campaign was expected{hint}")


def died_utc(watched: Watched) -> str:
    """When a campaign said its last word, for people."""
    last = datetime.fromtimestamp(time.time() - watched.age_s, UTC)
    return last.strftime("%Y-%m-%d %H:%M:%S UTC")


RESULTS = Path("results")
LATEST = Path("latest")


def find_campaign(folder: Path, results: Path = RESULTS) -> Path:
    """The folder itself, or for `latest`, where there is no such folder, the newest campaign below `results`.

    Raises:
        InputError: `latest` is asked for and there is no campaign yet.
    """
    if folder != LATEST or folder.exists():
        return folder
    # The folder's name is the campaign's start in UTC, so the names' order is that in time.
    found = [path.parent.resolve() for path in results.glob("*/latest/campaign.json")]
    if not found:
        raise InputError(f"latest: no campaign below {results}/; give the folder that holds campaign.json")
    return max(found, key=lambda path: path.name)
