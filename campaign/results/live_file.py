"""Current state of a campaign, and its file `live.json`: written by the run loop, read and judged from outside.

The views of `campaign.display.progress` show the state; `millrace top` and scripts read the file, which is replaced
every second.
"""

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from analysis.records.file_types import CAMPAIGN_FILE, FAILED, INCOMPLETE, OK, SKIPPED
from analysis.records.interval_metrics import Draining
from campaign.agenda.run_order import PlannedRun
from controller.coordinator.event_log import EventLog, LiveDecision
from controller.coordinator.live_metrics import FlowDocument, LiveMetrics
from controller.host.disk import find_state_folder
from controller.host.ownership import Owner, read_state
from controller.host.process_identity import ProcessIdentity, boot_id, this_process
from inventory.atomic_files import replace_file
from inventory.errors import InputError
from inventory.foreign import printable, printable_all
from inventory.times import utc_in_words, utc_stamp
from scheduler.toolkit.cost import Cost

LIVE_FILE = "live.json"

OVERHEAD_S = 1.3
"""Estimated duration of a run on kept agents without warm-up and measured interval, until a run has been timed."""

PREPARING = "preparing"
"""Stage before the first run."""

DRAINING = "draining"
"""Stage from the stop of the sources until the topology has drained."""

REPORTING = "reporting"
"""Stage after the last run while the report is built; `live.json` is not updated meanwhile."""

FINISHED, INTERRUPTED, FAILING = "finished", "interrupted", "failed"
"""The last stages."""


class Sending(Struct, frozen=True):
    """Transfer of inputs to nodes over SSH."""

    sent_bytes: int
    of_bytes: int


class LiveRecord(Struct, frozen=True, kw_only=True):
    """`live.json`.

    Attributes:
        campaign: name of the campaign.
        process: the controller.
        updated_utc: time of this update.
        run: the current run; null between runs, as its attempt.
        attempt: number of the attempt at the run, from 1.
        number: number of runs that have ended or are running.
        of: number of all runs.
        stage: the current stage; the last one is `finished`, `interrupted` or `failed`.
        stage_elapsed_s: seconds since the stage began.
        stage_s: its expected duration.
        tuples_per_s: tuples into the sinks in the last second.
        latency_p50_ms: their median latency.
        sending: null without a transfer.
        time_left_s: estimated time until the end of the last run.
        outcomes: number of runs with each status.
        draining: what the topology has yet to do, in the stage `draining`; null in all others.
        flow: null without tuples.
        decisions: the last decisions of the run's online scheduler, the newest first.
        overloaded_nodes: nodes that the run's placement overloads at its start; null without a run.
        overloaded_workers: the same of workers, by the loads that are known; null if none is known, too.
        undetermined_workers: other workers that may be overloaded, too, because not all of their loads are known; null
            without a run.
    """

    campaign: str
    process: ProcessIdentity
    updated_utc: str
    run: str | None
    attempt: int | None
    number: int
    of: int
    stage: str
    stage_elapsed_s: float
    stage_s: float | None
    tuples_per_s: float | None
    latency_p50_ms: float | None
    sending: Sending | None = None
    time_left_s: float
    outcomes: Mapping[str, int]
    draining: Draining | None = None
    flow: FlowDocument | None = None
    decisions: tuple[LiveDecision, ...] = ()
    overloaded_nodes: int | None = None
    overloaded_workers: int | None = None
    undetermined_workers: int | None = None


class LiveFile:
    """Current state of a campaign.

    Attributes:
        campaign: name of the campaign.
        total: number of its runs.
        outcomes: number of runs with each status, including runs before `--resume`.
        run: the current run, or None.
        attempt: number of the attempt at the run.
        stage_name: the current stage.
        stage_s: expected duration of the stage, or None.
    """

    def __init__(self, campaign: str, total: int, done: int, nominal_s: float) -> None:
        """Start with `done` of `total` runs complete; `nominal_s` is a run's warm-up and measured interval."""
        self.campaign, self.total = campaign, total
        self.outcomes: Counter[str] = Counter({OK: done})
        self.run: PlannedRun | None = None
        self.attempt = 1
        self.stage_name = PREPARING
        self.stage_s: float | None = None
        self._stage_since = self._run_since = time.monotonic()
        self._flow: LiveMetrics | None = None
        self._event_log: EventLog | None = None
        self._taken = 0
        self._sending: dict[str, tuple[int, int]] = {}
        self._process = this_process()
        self._nominal_s = nominal_s
        self._took: list[float] = []
        self._left = total - done
        self._cost: Cost | None = None

    def start(self, run: PlannedRun, attempt: int, left: int, cost: Cost | None = None) -> None:
        """Begin a run, with `left` runs after it and the cost of its placement."""
        self.run, self.attempt, self._left, self._cost = run, attempt, left, cost
        self._run_since = time.monotonic()
        self._event_log = None
        self.stage("starting")

    def stage(self, name: str, seconds: float | None = None, flow: LiveMetrics | None = None) -> None:
        """Begin a stage with an expected duration of `seconds`; `flow` has the live metrics of the topology."""
        self.stage_name, self.stage_s, self._flow = name, seconds, flow
        self._sending = {}
        self._stage_since = time.monotonic()

    def follow(self, event_log: EventLog) -> None:
        """Show the decisions of this event log until the run ends."""
        self._event_log, self._taken = event_log, 0

    def take_decisions(self) -> list[LiveDecision]:
        """Return the decisions of the run whose outcome has become known since the last call."""
        records = [] if self._event_log is None else self._event_log.revisions[self._taken :]
        self._taken += len(records)
        return [LiveDecision.of(record) for record in records]

    def send(self, what: str, sent: int, of: int) -> None:
        """Record the progress of a transfer to a node, in bytes; thread-safe."""
        self._sending[what] = (sent, of)

    def end(self, status: str) -> float:
        """End the run; return its duration in seconds."""
        took = time.monotonic() - self._run_since
        self.outcomes[status] += 1
        if status == OK:
            self._took.append(took)
        self.run = self._event_log = None
        self.stage("between runs")
        return took

    def close(self, how: str) -> None:
        """End the last run; the stage becomes `reporting`, `finished`, `interrupted` or `failed`."""
        self.run, self._left = None, 0
        self.stage(how)

    @property
    def in_stage_s(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self._stage_since

    @property
    def _draining(self) -> Draining | None:
        """Work that the topology has yet to do, while it drains."""
        if self.stage_name != DRAINING or self._flow is None:
            return None
        return self._flow.left(time.monotonic())

    @property
    def time_left_s(self) -> float:
        """Estimated seconds until the last run has ended."""
        expected = sum(self._took) / len(self._took) if self._took else self._nominal_s + OVERHEAD_S
        current = max(0.0, expected - (time.monotonic() - self._run_since)) if self.run else 0.0
        if self._draining is not None:
            current = max(current, self._draining.seconds or 0.0)
        return current + expected * self._left

    @property
    def number(self) -> int:
        """Number of runs that have ended or are running."""
        return sum(self.outcomes.values()) + (self.run is not None)

    def record(self) -> LiveRecord:
        """Return the current state."""
        now = time.monotonic()
        tuples_per_s, latency_p50_ms = (None, None) if self._flow is None else self._flow.sample(now)
        cost = None if self.run is None else self._cost
        moves = list(self._sending.values())
        sent, of = sum(sent for sent, _ in moves), sum(of for _, of in moves)
        return LiveRecord(
            campaign=self.campaign,
            process=self._process,
            updated_utc=utc_stamp(),
            run=None if self.run is None else self.run.name,
            attempt=None if self.run is None else self.attempt,
            number=self.number,
            of=self.total,
            stage=self.stage_name,
            stage_elapsed_s=round(self.in_stage_s, 1),
            stage_s=self.stage_s,
            tuples_per_s=_rounded(tuples_per_s),
            latency_p50_ms=_rounded(latency_p50_ms),
            sending=Sending(sent, of) if sent < of else None,
            time_left_s=round(self.time_left_s, 1),
            outcomes={status: self.outcomes[status] for status in (OK, INCOMPLETE, FAILED, SKIPPED)},
            draining=self._draining,
            flow=None if self._flow is None else self._flow.document(now),
            decisions=() if self._event_log is None else self._event_log.decisions,
            overloaded_nodes=None if cost is None else _counted(cost.overloaded_nodes),
            overloaded_workers=None if cost is None else _counted(cost.overloaded_workers),
            undetermined_workers=None if cost is None else _counted(cost.undetermined_workers),
        )


def _counted(value: int | UnsetType | None) -> int | None:
    return None if value is UNSET else value


def read_live(folder: Path) -> LiveRecord | None:
    """Return the `live.json` of a campaign's folder with printable text; None before the first one.

    Raises:
        InputError: it is invalid.
    """
    path = folder / LIVE_FILE
    try:
        return msgspec.convert(printable_all(msgspec.json.decode(path.read_bytes())), LiveRecord, str_keys=True)
    except FileNotFoundError:
        return None
    except (OSError, RecursionError, msgspec.DecodeError) as fault:
        raise InputError(f"{path}: cannot be read as a campaign's {LIVE_FILE}: {fault}") from None


def write_live(record: LiveRecord, folder: Path) -> None:
    """Replace `live.json`; ignore errors, which must not end a campaign."""
    with suppress(OSError):
        replace_file(folder / LIVE_FILE, msgspec.json.encode(record) + b"\n")


def finish_live(folder: Path, how: str = FINISHED) -> None:
    """Set the last stage of a campaign that has ended after its last run."""
    with suppress(InputError):
        record = read_live(folder)
        if record is not None:
            write_live(replace(record, updated_utc=utc_stamp(), stage=how, stage_elapsed_s=0.0), folder)


def duration_text(seconds: float) -> str:
    """Format a duration: `45 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`.

    >>> duration_text(45), in_words(185), in_words(7800), in_words(274000)
    ('45 s', '3 min 05 s', '2 h 10 min', '3 d 4 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ms_in_words(ms: float) -> str:
    """Format a latency: `0.512 ms`, `12.3 ms`, `12,346 ms`."""
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


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
    live: LiveRecord | None
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
            if record is not None and record.is_campaign and record.header.owner.process.is_alive():
                owners.append(record.header.owner)
    return owners


def look_at(folder: Path) -> Watched:
    """Return the current state of a campaign.

    Raises:
        InputError: the folder contains no campaign, or its `live.json` is invalid.
    """
    live = read_live(folder)
    owner = next((o for o in running_campaigns() if Path(o.campaign).resolve() == folder.resolve()), None)
    if owner is not None and (live is None or owner.process != live.process):
        return Watched(folder, CampaignCondition.PREPARING, None, 0.0)
    if live is None:
        raise _no_campaign(folder)
    age_s = max(0.0, time.time() - datetime.fromisoformat(live.updated_utc).timestamp())
    return Watched(folder, _condition(live, age_s), live, age_s)


def _condition(live: LiveRecord, age_s: float) -> CampaignCondition:
    if live.stage in (FINISHED, INTERRUPTED, FAILING):
        return CampaignCondition.ENDED
    # The file is not updated while the report is built.
    if live.stage != REPORTING and age_s <= FRESH_S:
        return CampaignCondition.RUNNING
    if live.process.is_alive():
        return CampaignCondition.RUNNING if live.stage == REPORTING else CampaignCondition.SILENT
    elsewhere = live.process.boot != boot_id() or live.process.is_foreign()
    return CampaignCondition.SILENT if elsewhere else CampaignCondition.DIED


def _no_campaign(folder: Path) -> InputError:
    if (folder / CAMPAIGN_FILE).is_file():
        return InputError(f"{folder}: the campaign has left no {LIVE_FILE}")
    below = [path for path in (folder / LATEST, *sorted(folder.glob("*/latest"))) if (path / LIVE_FILE).is_file()]
    hint = f"; did you mean {str(below[0])!r}?" if below else ""
    return InputError(f"{folder}: contains no {LIVE_FILE}; expected the folder of a campaign{hint}")


def died_utc(watched: Watched) -> str:
    """Return the time of a campaign's last update as text."""
    return utc_in_words(datetime.fromtimestamp(time.time() - watched.age_s, UTC))


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
    campaigns = [path.parent.resolve() for path in results.glob("*/latest/campaign.json")]
    if not campaigns:
        raise InputError(f"latest: no campaign in {results}/; give the folder that contains campaign.json")
    return max(campaigns, key=lambda path: path.name)
