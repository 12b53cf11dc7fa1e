"""A campaign's results packed into one archive, with what others need to check and repeat them.

A bundle is a tar archive (POSIX pax) compressed by zstd, with one top folder. The manifest is its first file, so that a
reader knows all names and sizes before it unpacks anything.
"""

import re
import stat
import tarfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import file_digest, sha256
from io import SEEK_END, BufferedReader, BytesIO
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO

import pyarrow as pa
from msgspec import Meta, Struct

from agents.collected_traces import TABLES
from analysis.records.aa_rate import AA_FILE
from analysis.records.campaign import Campaign, load_campaign
from analysis.records.file_types import CAMPAIGN_FILE, FINISHED, RUN_FILE, CampaignRecord, RunRecord
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

BUNDLE_VERSION = 1
SUFFIX = ".tar.zst"
CODEC = "zstd"

MANIFEST = "MANIFEST.json"
SUMS = "SHA256SUMS"
SCRIPT = "remake_figures.py"
OF_ITS_OWN = ("README.md", SCRIPT, "agenda.json", "cluster.json", "environment/facts.json")
"""Files that the results do not have; `SUMS` and `MANIFEST` are added when all others are known."""

LOCKS = Path(__file__).parents[2] / "requirements"


class BundledFile(Struct, frozen=True):
    """A file of the bundle: path below the top folder, size and checksum."""

    path: str
    bytes: Annotated[int, Meta(ge=0)]
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    """`MANIFEST.json`.

    Attributes:
        bundle_version: version of this format.
        results_version: version of the format of the results.
        campaign: name of the campaign.
        version, git_commit: version and commit of Millrace that made the results.
        missing: paths that complete results would have, in order.
        files: all other files, sorted by path.
    """

    bundle_version: int
    results_version: int
    campaign: str
    version: str
    git_commit: str | None
    missing: Sequence[str]
    files: Sequence[BundledFile]

    @property
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(each.bytes for each in self.files)


def fault_of_paths(paths: Sequence[str]) -> str:
    """Return the first fault of the paths of a bundle: one that is unsafe, occurs twice, or is a folder of another.

    >>> fault_of_paths(["runs/001/run.json", "../x"])
    "the name '../x' leads out of its folder"
    """
    for path in paths:
        if len(path) > 1000 or printable(path) != path:
            return f"the name {printable(path)!r} is too long or has characters that cannot be shown"
        if path.startswith("/") or ".." in path.split("/"):
            return f"the name {path!r} leads out of its folder"
        if str(PurePosixPath(path)) != path or path == ".":
            return f"the name {path!r} is not a plain path"
    # This order puts a file directly before what would be inside it.
    for path, following in pairwise(sorted([MANIFEST, *paths], key=lambda path: path.replace("/", "\0"))):
        if following == path:
            return f"the name {path!r} occurs twice"
        if following.startswith(f"{path}/"):
            return f"{path!r} is a file and a folder"
    return ""


def write_bundle(folder: Path, target: Path, on_progress: Callable[[float], None] = lambda _share: None) -> Manifest:
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
    contents = _contents(folder, campaign)
    if fault := fault_of_paths([*contents, SUMS]):
        raise InputError(f"{printable(folder)}: {fault}")
    entries: list[BundledFile] = []
    for path, content in contents.items():
        on_progress(len(entries) / len(contents) / 2)
        entries.append(_entry(path, content))
    contents[SUMS] = checksum_lines(sorted(entries, key=lambda entry: entry.path))
    entries = sorted([*entries, _entry(SUMS, contents[SUMS])], key=lambda entry: entry.path)
    record = campaign.file
    manifest = Manifest(
        bundle_version=BUNDLE_VERSION,
        results_version=record.results_version,
        campaign=campaign.agenda.name,
        version=record.version,
        git_commit=record.git_commit,
        missing=missing_paths(record, {run.id: run.file for run in campaign.runs if run.file}, set(contents)),
        files=entries,
    )
    contents[MANIFEST] = dump_json(manifest).encode()
    root = re.sub(r"[^A-Za-z0-9_-]+", "-", campaign.agenda.name).strip("-")[:60] or "campaign"

    def show_written() -> None:
        on_progress(min(0.5 + stream.tell() / manifest.total_bytes / 2, 1.0))

    with (
        writing(target.parent),
        replacing_path(target) as partial,
        pa.CompressedOutputStream(pa.OSFile(str(partial), "wb"), CODEC) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as archive,
    ):
        for entry in (_entry(MANIFEST, contents[MANIFEST]), *entries):
            member = tarfile.TarInfo(f"{root}/{entry.path}")
            member.size = entry.bytes
            with _opened(contents[entry.path]) as file:
                archive.addfile(member, _Unchanged(file, entry, show_written))
    return manifest


class _Unchanged:
    """A file that is read once more, and must be what its entry says."""

    def __init__(self, file: BinaryIO, entry: BundledFile, on_read: Callable[[], None]) -> None:
        self._file, self._entry, self._on_read = file, entry, on_read
        self._left, self._digest = entry.bytes, sha256()

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            RunError: the file has changed.
        """
        piece = self._file.read(count)
        self._left -= len(piece)
        self._digest.update(piece)
        if len(piece) < count or (self._left == 0 and self._digest.hexdigest() != self._entry.sha256):
            path = self._entry.path
            raise RunError(f"{path} has changed while it was bundled; bundle again when nothing writes to it")
        self._on_read()
        return piece


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


def checksum_lines(entries: Sequence[BundledFile]) -> bytes:
    """Return checksums as `sha256sum --check` reads them."""
    return "".join(f"{each.sha256}  {each.path}\n" for each in entries if each.path != SUMS).encode()


def _check(folder: Path, target: Path) -> None:
    if not target.name.endswith(SUFFIX) or target.name == SUFFIX:
        raise InputError(f"--out {printable(target)}: expected a name that ends in {SUFFIX}")
    if not target.parent.is_dir():
        raise InputError(f"--out {printable(target)}: there is no folder {printable(target.parent)}")
    if folder in target.resolve().parents:
        raise InputError(f"--out {printable(target)}: is in the campaign's folder; the bundle must be elsewhere")
    if any(Path(owner.campaign).resolve() == folder for owner in running_campaigns()):
        raise InputError(f"{printable(folder)}: the campaign is still running")
    if not (folder / "report" / "tables").is_dir():
        shown = printable(folder)
        raise InputError(f"{shown}: no report yet, so there are no figures; build it with: millrace report {shown}")


def _contents(folder: Path, campaign: Campaign) -> dict[str, bytes | Path]:
    """Return path -> content, or the file that has it, of all files but the manifest and the checksums."""
    locks = sorted(LOCKS.glob("*.txt"))
    if not locks:
        raise UnfitError(f"{LOCKS}: the lock files are missing; make bundles with the millrace of a checkout")
    record = to_plain(campaign.file)
    agenda = {**record["agenda"]}
    if isinstance(agenda.get("report"), dict):
        # The rate of false positives is in the copy of the results; its path is of no use elsewhere.
        agenda["report"] = {**agenda["report"], "aa": None}
    files: dict[str, bytes | Path] = {
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
        for path in (top, *top.rglob("*")):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                files[path.relative_to(folder).as_posix()] = path
            elif not stat.S_ISDIR(mode):
                raise InputError(f"{printable(path)}: is neither a file nor a folder; a bundle has no links or devices")
    return files


def _opened(content: bytes | Path) -> BytesIO | BufferedReader:
    return BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def _entry(path: str, content: bytes | Path) -> BundledFile:
    try:
        with _opened(content) as file:
            digest = file_digest(file, "sha256").hexdigest()
            return BundledFile(path, file.seek(0, SEEK_END), digest)
    except OSError as fault:
        raise InputError(f"{printable(content)}: cannot be read: {fault.strerror}") from None
