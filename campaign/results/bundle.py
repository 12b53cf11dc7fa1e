"""A campaign's results packed into a bundle, with what others need to check and repeat them.

MANIFEST.json  README.md  SHA256SUMS  remake_figures.py
agenda.json  cluster.json  campaign.json  aa.json
environment/            lock files, and facts of the controller's machine
runs/                   records, raw traces, answers and logs of complete runs
profiling/  loads/      the same of profiling runs, with their traffic, and of calibrations of loads
report/                 page, tables (the data of figures) and figures
"""

import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from agents.collected_traces import TABLES
from analysis.records.aa_rate import AA_FILE
from analysis.records.campaign import Campaign, load_campaign
from analysis.records.file_types import CAMPAIGN_FILE, FINISHED, RUN_FILE, CampaignRecord, RunRecord
from campaign.results.bundle_format import (
    BUNDLE_VERSION,
    CHUNK,
    CODEC,
    END,
    MANIFEST,
    BundledFile,
    Manifest,
    fault_of_paths,
    header,
    padding,
)
from campaign.results.bundle_texts import README, REMAKE
from campaign.results.live_file import running_campaigns
from campaign.results.profiles import PROFILING
from campaign.results.result_store import LOADS
from controller.host.disk import writing
from controller.host.ownership import PARTIAL
from inventory.atomic_files import replacing_path
from inventory.documents import dump_json, to_plain
from inventory.errors import InputError, RunError, UnfitError
from inventory.foreign import printable

SUFFIX = ".tar.zst"
SUMS = "SHA256SUMS"
SCRIPT = "remake_figures.py"
OF_ITS_OWN = ("README.md", SCRIPT, "agenda.json", "cluster.json", "environment/facts.json")
"""Files that the results do not have; `SUMS` is added when all others are known."""

LOCKS = Path(__file__).parents[2] / "requirements"

Share = Callable[[float], None]


@dataclass(frozen=True)
class _Source:
    """Content of a file of the bundle: bytes, or a file whose content must not change."""

    content: bytes | Path
    entry: BundledFile


def write_bundle(folder: Path, target: Path, on_progress: Share = lambda _share: None) -> Manifest:
    """Write the bundle of the campaign in `folder` to `target`, which is replaced once it is complete.

    The same results give the same bytes, wherever they are.

    Args:
        folder: contains `campaign.json` and a report.
        target: ends in `.tar.zst`.
        on_progress: called with the completed share.

    Raises:
        InputError: there is no campaign or no report, the campaign is still running, or a file cannot be bundled.
        RunError: a file has changed meanwhile.
        DiskFullError, UnfitError: the bundle cannot be written; lock files are missing.
    """
    folder = folder.resolve()
    campaign = load_campaign(folder)
    _check(folder, target)
    found = _files(folder, campaign)
    if fault := fault_of_paths([*found, SUMS]):
        raise InputError(f"{printable(folder)}: {fault}")
    total = sum(len(each) if isinstance(each, bytes) else each.stat().st_size for each in found.values())
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(min(done / (2 * total), 1.0))

    sources = [_Source(content, _entry(path, content, advance)) for path, content in sorted(found.items())]
    sums = sums_of([source.entry for source in sources])
    sources = sorted([*sources, _Source(sums, _entry(SUMS, sums, advance))], key=lambda source: source.entry.path)
    record = campaign.file
    manifest = Manifest(
        bundle_version=BUNDLE_VERSION,
        results_version=record.results_version,
        campaign=campaign.agenda.name,
        version=record.version,
        git_commit=record.git_commit,
        missing=missing_paths(record, {run.id: run.file for run in campaign.runs if run.file}, set(found)),
        files=[source.entry for source in sources],
    )
    with (
        writing(target.parent),
        replacing_path(target) as partial,
        pa.CompressedOutputStream(pa.OSFile(str(partial), "wb"), CODEC) as stream,
    ):
        for part in _archive(manifest, sources, _root(campaign), advance):
            stream.write(part)
    return manifest


def missing_paths(record: CampaignRecord, runs: Mapping[str, RunRecord], paths: set[str]) -> list[str]:
    """Return the paths that complete results would have: a record for every run, and all traces of measured ones.

    Args:
        record: `campaign.json`.
        runs: run -> `run.json`.
        paths: what there is.
    """
    planned = {*runs, *(record.seeds.runs if record.seeds else ())}
    measured = [name for name, run in runs.items() if run.status in FINISHED]
    wanted = [f"runs/{name}/{RUN_FILE}" for name in planned]
    wanted += [f"runs/{name}/traces/{table}.parquet" for name in measured for table in TABLES]
    return sorted(set(wanted) - paths)


def sums_of(entries: Sequence[BundledFile]) -> bytes:
    """Return checksums as `sha256sum --check` reads them."""
    return "".join(f"{each.sha256}  {each.path}\n" for each in entries if each.path != SUMS).encode()


def _check(folder: Path, target: Path) -> None:
    if not target.name.endswith(SUFFIX) or target.name == SUFFIX:
        raise InputError(f"--out {printable(target)}: expected a name that ends in {SUFFIX}")
    if not target.parent.is_dir():
        raise InputError(f"--out {printable(target)}: there is no folder {printable(target.parent)}")
    if folder in target.resolve().parents:
        raise InputError(f"--out {printable(target)}: is in the campaign's folder; the bundle must be elsewhere")
    if target.is_dir():
        raise InputError(f"--out {printable(target)}: is a folder")
    if any(Path(owner.campaign).resolve() == folder for owner in running_campaigns()):
        raise InputError(f"{printable(folder)}: the campaign is still running")
    if not (folder / "report" / "tables").is_dir():
        shown = printable(folder)
        raise InputError(f"{shown}: no report yet, so there are no figures; build it with: millrace report {shown}")


def _root(campaign: Campaign) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", campaign.agenda.name).strip("-")[:60] or "campaign"


def _files(folder: Path, campaign: Campaign) -> dict[str, bytes | Path]:
    """Return path -> content of all files but the manifest and the checksums."""
    locks = sorted(LOCKS.glob("*.txt"))
    if not locks:
        raise UnfitError(f"{LOCKS}: the lock files are missing; make bundles with the millrace of a checkout")
    record = to_plain(campaign.file)
    agenda = {**record["agenda"]}
    if isinstance(agenda.get("report"), dict):
        # The rate of false positives is in the copy of the results; its path is of no use elsewhere.
        agenda["report"] = {**agenda["report"], "aa": None}
    found: dict[str, bytes | Path] = {
        "README.md": README.format(
            campaign=printable(campaign.name),
            version=printable(campaign.file.version or "unknown"),
            commit=printable(campaign.file.git_commit or "unknown"),
            started=printable(campaign.file.started_utc or "unknown"),
        ).encode(),
        SCRIPT: REMAKE.encode(),
        "agenda.json": dump_json(agenda).encode(),
        "cluster.json": dump_json(record["cluster"]).encode(),
        "environment/facts.json": dump_json({"host": record["host"], "resumed": record["resumed"]}).encode(),
        **{f"environment/{path.name}": path for path in locks},
    }
    tops = [folder / name for name in (CAMPAIGN_FILE, AA_FILE, "report")]
    runs = [run.folder for run in campaign.runs if run.file is not None and run.folder.suffix != PARTIAL]
    # Traffic by which runs were placed, and rates that loads are shares of.
    sources = [each for name in (PROFILING, LOADS) for each in (folder / name).glob("*") if each.suffix != PARTIAL]
    for top in [each for each in tops if each.exists()] + runs + sources:
        for path in _plain_files(top):
            found[path.relative_to(folder).as_posix()] = path
    return found


def _plain_files(top: Path) -> Iterator[Path]:
    """Yield a file, or all files in a folder.

    Raises:
        InputError: there is a link or a special file.
    """
    mode = top.lstat().st_mode
    if stat.S_ISDIR(mode):
        for entry in sorted(top.iterdir()):
            yield from _plain_files(entry)
    elif stat.S_ISREG(mode):
        yield top
    else:
        raise InputError(f"{printable(top)}: is neither a file nor a folder; a bundle has no links or devices")


def _pieces(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    try:
        with content.open("rb") as file:
            yield from iter(lambda: file.read(CHUNK), b"")
    except OSError as fault:
        raise InputError(f"{printable(content)}: cannot be read: {fault.strerror}") from None


def _entry(path: str, content: bytes | Path, advance: Callable[[int], None]) -> BundledFile:
    digest, size = sha256(), 0
    for piece in _pieces(content):
        digest.update(piece)
        size += len(piece)
        advance(len(piece))
    return BundledFile(path, size, digest.hexdigest())


def _archive(
    manifest: Manifest, sources: Sequence[_Source], root: str, advance: Callable[[int], None]
) -> Iterator[bytes]:
    """Yield the bytes of the archive before compression."""
    first = dump_json(manifest).encode()
    yield from (header(f"{root}/{MANIFEST}", len(first)), first, padding(len(first)))
    for source in sources:
        entry, digest, size = source.entry, sha256(), 0
        yield header(f"{root}/{entry.path}", entry.bytes)
        with closing(_pieces(source.content)) as pieces:  # type: ignore[type-var] # a generator
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                advance(len(piece))
                yield piece
        if digest.hexdigest() != entry.sha256:
            raise RunError(f"{entry.path} has changed while it was bundled; bundle again when nothing writes to it")
        yield padding(size)
    yield END
