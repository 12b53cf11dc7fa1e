"""Check of a bundle: checksums, completeness, and the version of its results."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from analysis.records.file_types import CAMPAIGN_FILE, RUN_FILE, CampaignRecord, RunRecord
from campaign.results.bundle import OF_ITS_OWN, SUMS, missing_paths, sums_of
from campaign.results.bundle_format import BundledFile, BundleReader, Manifest
from controller.host.disk import writing
from inventory.errors import InputError
from inventory.foreign import printable

T = TypeVar("T")

MOST_RECORD_BYTES = 256 << 20
"""Largest accepted record: they are read as a whole."""


@dataclass(frozen=True)
class CheckedBundle:
    """A bundle whose content is that of its manifest: the manifest, its checksum, and the number of runs."""

    manifest: Manifest
    sha256: str
    record: CampaignRecord
    runs: int


def check_bundle(
    path: Path, on_progress: Callable[[float], None] = lambda _share: None, into: Path | None = None
) -> CheckedBundle:
    """Check a bundle in one pass.

    Args:
        path: the bundle.
        on_progress: called with the completed share.
        into: an empty folder to which the files are written; None: nothing is written.

    Raises:
        InputError: it is no bundle; it is cut or altered; it has other files than its manifest, or unsafe ones; or its
            results are of an unknown version.
        DiskFullError, UnfitError: `into` cannot be written.
    """
    with BundleReader(path) as reader:
        manifest, total = reader.manifest, reader.manifest.total_bytes or 1
        records: dict[str, bytes] = {}
        for entry, content in reader.files():
            with ExitStack() as stack:
                file = None
                if into is not None:
                    stack.enter_context(writing(into))
                    final = into / entry.path
                    final.parent.mkdir(parents=True, exist_ok=True)
                    file = stack.enter_context(final.open("xb"))
                kept = bytearray() if _is_record(path, entry) else None
                for piece in content:
                    on_progress(reader.position / total)
                    if file is not None:
                        file.write(piece)
                    if kept is not None:
                        kept += piece
                if kept is not None:
                    records[entry.path] = bytes(kept)
        record, runs = _check_content(path, manifest, records)
        return CheckedBundle(manifest, reader.sha256, record, runs)


def _is_record(path: Path, entry: BundledFile) -> bool:
    """Return whether the content of a file is checked."""
    if entry.path not in (CAMPAIGN_FILE, SUMS) and _run_of(entry.path) is None:
        return False
    if entry.bytes > MOST_RECORD_BYTES:
        raise _error(path, f"{entry.path} has {entry.bytes:,} bytes, more than {MOST_RECORD_BYTES:,}")
    return True


def _run_of(path: str) -> str | None:
    """Return the run whose record has this path."""
    match path.split("/"):
        case ["runs", name, file] if file == RUN_FILE:
            return name
    return None


def _check_content(path: Path, manifest: Manifest, records: dict[str, bytes]) -> tuple[CampaignRecord, int]:
    """Return the record of the campaign and the number of runs.

    Raises:
        InputError: a file is missing or wrong, or more is missing than the manifest says.
    """
    paths = {entry.path for entry in manifest.files}
    for needed in (*OF_ITS_OWN, CAMPAIGN_FILE, SUMS):
        if needed not in paths:
            raise _error(path, f"is not complete: it has no {needed}")
    for folder in ("environment/", "report/tables/"):
        if not any(each.startswith(folder) for each in paths - {*OF_ITS_OWN}):
            raise _error(path, f"is not complete: nothing is in {folder}")
    if records[SUMS] != sums_of(manifest.files):
        raise _error(path, f"{SUMS} has other checksums than the manifest")
    record = _decoded(path, CAMPAIGN_FILE, records[CAMPAIGN_FILE], CampaignRecord)
    if record.results_version != manifest.results_version:
        raise _error(
            path, f"results_version is {record.results_version}, but {manifest.results_version} in the manifest"
        )
    runs = {name: _decoded(path, file, records[file], RunRecord) for name, file in _runs(records)}
    missing = missing_paths(record, runs, paths)
    if unsaid := sorted(set(missing) - set(manifest.missing)):
        raise _error(path, f"is not complete: it has no {printable(unsaid[0])}, and its manifest does not say so")
    return record, len(runs)


def _runs(records: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    for file in records:
        if (name := _run_of(file)) is not None:
            yield name, file


def _decoded(path: Path, file: str, content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise _error(path, f"{file}: {printable(fault)}") from None


def _error(path: Path, message: str) -> InputError:
    return InputError(f"{printable(path)}: {message}")
