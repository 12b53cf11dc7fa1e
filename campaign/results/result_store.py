"""The results of one campaign on disk.

    <out>/<campaign>/latest -> <UTC start>
    <out>/<campaign>/<UTC start>/
        campaign.json                       the agenda with defaults, version, git commit, host, seeds, cluster
        live.json                           the current state (`campaign.results.live_file`)
        aa.json                             the testbed's false-positive rate, if known
        runs/<name>/                        a complete run: run.json, traces/, answer/, logs/
        runs/<name>.partial/                an incomplete run
        profiling/<name>/                   the same of a profiling run (`campaign.results.profiles`)
        loads/<name>/                       calibration of a load, like a run
        searches/<name>/<number>/           trials of a search that goes on, or has found nothing
        report/

The folder of a run has a partial name until all its files are on disk. A folder with a final name is therefore
complete, and `--resume` needs no other information.
"""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from analysis.records.descriptions import why_unreadable
from analysis.records.file_types import CAMPAIGN_FILE, FINISHED, RUN_FILE, CampaignRecord, RunRecord
from campaign.results.hdr_log import LATENCY_LOG
from controller.host.disk import DiskFullError, writing
from controller.host.ownership import PARTIAL
from inventory.atomic_files import complete_folder, replace_file, replacing_path
from inventory.documents import Document, dump_json, read
from inventory.errors import InputError, UnfitError

LATEST = "latest"


def new_folder(out: Path, campaign: str) -> Path:
    """Return an unused folder for a campaign that starts now, without creating it."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = out / campaign / stamp
    number = 1
    while folder.exists():
        number += 1
        folder = out / campaign / f"{stamp}-{number}"
    return folder


def read_record(folder: Path) -> Document:
    """Return the `campaign.json` of an earlier campaign.

    Raises:
        InputError: the folder contains no campaign.
    """
    if not (folder / CAMPAIGN_FILE).is_file():
        raise InputError(f"{folder}: holds no {CAMPAIGN_FILE}; the folder of a campaign was expected")
    record = read(folder / CAMPAIGN_FILE)
    if not isinstance(record.data, dict):
        raise record.error((), "a mapping was expected")
    version = record.data.get("results_version", 1)
    unreadable = why_unreadable(version, record.data.get("version", "")) if isinstance(version, int) else ""
    if unreadable:
        raise record.error(("results_version",), unreadable)
    return record


def remove_measured(folder: Path) -> None:
    """Remove what was measured in a run's folder, except its logs: before a retry, or of a trial that is of no use."""
    for name in ("traces", "answer", "profiles"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / LATENCY_LOG).unlink(missing_ok=True)


LOADS = "loads"
"""Folder of calibrations of loads."""


class ResultStore:
    """Folder of one campaign's results."""

    def __init__(self, folder: Path, runs: str = "runs") -> None:
        """Open the folder; `runs` is its part with runs, profiles, trials of a search, or calibrations."""
        self.folder = folder
        self.runs = folder / runs

    @classmethod
    def create(cls, folder: Path, record: CampaignRecord) -> "ResultStore":
        """Create the folder with its `campaign.json`, and link `latest` to it.

        Raises:
            InputError: something else than the link is called `latest`.
            DiskFullError, UnfitError: it cannot be written; nothing is left.
        """
        store = cls(folder)
        latest = folder.parent / LATEST
        if latest.exists() and not latest.is_symlink():
            raise InputError(f"{latest}: is there already, and not the link to the newest campaign; move it away")
        missing = [p for p in (folder, *folder.parents) if not p.exists()]
        try:
            with writing(folder):
                store.runs.mkdir(parents=True)
                replace_file(folder / CAMPAIGN_FILE, dump_json(record).encode(), durable=True)
                with replacing_path(latest) as link:
                    link.symlink_to(folder.name)
        except UnfitError:
            shutil.rmtree(folder, ignore_errors=True)
            for parent in missing[1:]:
                with suppress(OSError):
                    parent.rmdir()
            raise
        return store

    def rewrite(self, record: CampaignRecord) -> None:
        """Replace `campaign.json`.

        Raises:
            DiskFullError, UnfitError: it cannot be written; the old content remains.
        """
        with writing(self.folder):
            replace_file(self.folder / CAMPAIGN_FILE, dump_json(record).encode(), durable=True)

    def begin(self) -> None:
        """Create the folder of runs in that of the campaign, unless it exists.

        Raises:
            DiskFullError, UnfitError: it cannot be written.
        """
        with writing(self.folder):
            self.runs.mkdir(exist_ok=True)

    def drop_partial(self) -> None:
        """Remove incomplete runs; call it while the cluster is locked."""
        for folder in self.runs.glob(f"*{PARTIAL}"):
            shutil.rmtree(folder, ignore_errors=True)

    def outcome(self, name: str) -> RunRecord | None:
        """Return the record of a run, or None without a complete result.

        Raises:
            InputError: the file cannot be read.
        """
        path = self.runs / name / RUN_FILE
        if not path.is_file():
            return None
        with suppress(msgspec.DecodeError, OSError):
            return msgspec.json.decode(path.read_bytes(), type=RunRecord)
        raise InputError(f"{path}: is not a run's result; remove its folder to have the run done again")

    def is_done(self, name: str) -> bool:
        """Return whether a run has measurements and is not repeated."""
        outcome = self.outcome(name)
        return outcome is not None and outcome.status in FINISHED

    def check_inputs(self, name: str, checksums: Mapping[str, str]) -> None:
        """Check that a complete run has read the same inputs as the remaining runs.

        Args:
            name: name of the run; incomplete runs are ignored.
            checksums: SHA-256 of every input, by its name.

        Raises:
            InputError: the run has read another input.
        """
        outcome = self.outcome(name)
        if outcome is None or outcome.status not in FINISHED:
            return
        read_then = {entry.name: entry.sha256 for entry in outcome.inputs}
        for what, checksum in checksums.items():
            if read_then.get(what, checksum) != checksum:
                raise InputError(
                    f"{self.folder}: {name} was done with another input {what!r}, so that runs could not be compared; "
                    "bring back what it was, or begin a new campaign"
                )

    def complete(self, name: str, partial: Path, record: RunRecord) -> Path:
        """Write `run.json` to a run's partial folder and rename the folder to its final name.

        An existing result of a failed run is replaced.

        Raises:
            DiskFullError, UnfitError: it cannot be written; the partial folder is removed.
        """
        final = self.runs / name
        try:
            with writing(self.folder):
                replace_file(partial / RUN_FILE, dump_json(record).encode(), durable=True)
                if final.exists():
                    shutil.rmtree(final)
                complete_folder(partial, final)
        except DiskFullError as fault:
            shutil.rmtree(partial, ignore_errors=True)
            raise self.full(fault) from None
        return final

    def full(self, fault: DiskFullError) -> DiskFullError:
        """Return the error for a full disk, with the command to continue."""
        return DiskFullError(f"{fault}; finished runs are kept. Make room, then: millrace run --resume {self.folder}")
