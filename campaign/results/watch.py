"""Observation of a campaign from outside: its folder, its `live.json`, and whether it is still running."""

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
"""Maximum age of the file in a running campaign, which replaces it every second."""


class CampaignCondition(Enum):
    """Condition of a campaign."""

    PREPARING = "preparing"  # it runs and has not written its state yet
    RUNNING = "running"
    SILENT = "silent"  # its state is old, and it may still run
    DIED = "died"
    ENDED = "ended"


class Watched(NamedTuple):
    """State of a campaign: its folder, its `live.json` (None before the first one), and the age of that file."""

    folder: Path
    condition: CampaignCondition
    live: LiveContent | None
    age_s: float


def selected_campaign(folder: Path | None) -> Path:
    """Return the folder of a campaign: the given one (or `latest`), else the running one, else the newest.

    Raises:
        InputError: there is none, or several are running and no folder is given.
    """
    if folder is not None:
        return find_campaign(folder)
    running = sorted({owner.campaign: owner for owner in running_campaigns()}.items())
    if len(running) > 1:
        listed = "".join(f"\n  {printable(path)}" for path, _ in running)
        raise InputError(f"top: several campaigns are running; give the folder of one of them:{listed}")
    if running:
        return Path(running[0][0])
    try:
        return find_campaign(LATEST)
    except InputError:
        raise InputError(
            "top: no campaign of this user is running on this machine, and there is none in results/; "
            f"give the folder that contains {LIVE_FILE}"
        ) from None


def running_campaigns() -> list[Owner]:
    """Return this user's running campaigns on this machine, from their state files."""
    owners = []
    for path in find_state_folder().glob("campaign-*.jsonl"):
        # A campaign may end meanwhile.
        with suppress(FileNotFoundError):
            record = read_state(path)
            if record is not None and not record.is_cluster and record.header.owner.process.is_alive():
                owners.append(record.header.owner)
    return owners


def look_at(folder: Path) -> Watched:
    """Return the current state of a campaign.

    Raises:
        InputError: the folder contains no campaign, or its `live.json` is invalid.
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
    # The file is not updated while the report is built.
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
    return InputError(f"{folder}: contains no {LIVE_FILE}; expected the folder of a campaign{hint}")


def died_utc(watched: Watched) -> str:
    """Return the time of a campaign's last update as text."""
    last = datetime.fromtimestamp(time.time() - watched.age_s, UTC)
    return last.strftime("%Y-%m-%d %H:%M:%S UTC")


RESULTS = Path("results")
LATEST = Path("latest")


def find_campaign(folder: Path, results: Path = RESULTS) -> Path:
    """Return the folder, or for `latest`, unless a folder has that name, the newest campaign in `results`.

    Raises:
        InputError: the folder is `latest` and there is no campaign yet.
    """
    if folder != LATEST or folder.exists():
        return folder
    # Folders are named after the campaign's start in UTC, so they sort by time.
    found = [path.parent.resolve() for path in results.glob("*/latest/campaign.json")]
    if not found:
        raise InputError(f"latest: no campaign in {results}/; give the folder that contains campaign.json")
    return max(found, key=lambda path: path.name)
