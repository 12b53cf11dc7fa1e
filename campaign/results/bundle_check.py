"""Check of a bundle: that it is what its manifest says, and nothing else; its unpacking; and its figures drawn again.

`tarfile` reads the archive, and its data filter sets the rights of what is unpacked. Names, kinds and sizes are checked
here, since `tarfile` also accepts links, several files of one name, and headers and files of any size.
"""

import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import file_digest, sha256
from io import SEEK_SET, BufferedReader, RawIOBase
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import pyarrow as pa

from analysis.records.campaign import load_campaign
from analysis.records.descriptions import why_unreadable
from analysis.records.file_types import CAMPAIGN_FILE, RUN_FILE, CampaignRecord, RunRecord
from analysis.statistics.metrics import Rows
from analysis.tables.summary import SPARK_COLUMNS
from campaign.results.bundle import (
    BUNDLE_VERSION,
    CODEC,
    MANIFEST,
    OF_ITS_OWN,
    SUMS,
    Manifest,
    checksum_lines,
    fault_of_paths,
    missing_paths,
)
from campaign.results.open_results import Results
from controller.host.disk import writing
from inventory.atomic_files import replacing_folder
from inventory.errors import InputError
from inventory.foreign import printable

T = TypeVar("T")

MOST_HEADER_BYTES = 8 << 10
"""Largest accepted header: one of a name of 1000 characters has about 5 KiB."""

MOST_RECORD_BYTES = 64 << 20
"""Largest accepted manifest or record: they are read as a whole."""

MOST_TIMES = 1000
"""Largest accepted ratio of content to archive: that of traces and logs is below 50, that of zeros above 10,000."""

MOST_END_BYTES = 2 * tarfile.RECORDSIZE
"""Zeros behind the last file."""

RECORD = re.compile(rf"runs/[^/]+/{re.escape(RUN_FILE)}|{re.escape(CAMPAIGN_FILE)}|{SUMS}")


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
    """Check a bundle in one pass and in bounded memory.

    Args:
        path: the bundle.
        on_progress: called with the completed share.
        into: an empty folder to which the files are written while they are checked; None: nothing is written.

    Raises:
        InputError: it is no bundle; it is cut or altered; it has other files than its manifest, or unsafe ones; or its
            results are of an unknown version.
        DiskFullError, UnfitError: `into` cannot be written.
    """
    try:
        if not path.is_file():
            raise InputError("is not a file" if path.exists() else "there is no such file")
        with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, CODEC) as unpacked:
            stream = _Forwards(unpacked, lambda: on_progress(file.tell() / file.size()))
            with tarfile.open(fileobj=stream, mode="r:", encoding="utf-8") as archive:
                return _checked(archive, stream, file.size(), into)
    except InputError as fault:
        raise InputError(f"{printable(path)}: {fault}") from None
    except OSError as fault:
        raise InputError(f"{printable(path)}: cannot be read: {fault.strerror or fault}") from None
    except (tarfile.TarError, ArithmeticError, LookupError, ValueError) as fault:  # all that `tarfile` lets through
        raise InputError(
            f"{printable(path)}: is not a bundle of Millrace, or is cut or damaged: {printable(fault)}"
        ) from None


class _Forwards(RawIOBase):
    """The unpacked bytes of a bundle, of which no more are read than expected, and none twice.

    `tarfile` keeps a header in memory, and searches it in quadratic time, however long it claims to be.
    """

    def __init__(self, unpacked: pa.CompressedInputStream, on_read: Callable[[], None]) -> None:
        super().__init__()
        self._unpacked, self._on_read = unpacked, on_read
        self._at, self._end = 0, MOST_HEADER_BYTES

    def expect(self, count: int) -> None:
        """Allow to read this number of bytes from here."""
        self._end = self._at + count

    def tell(self) -> int:
        return self._at

    def seek(self, to: int, _whence: int = SEEK_SET) -> int:
        self.read(to - self._at)
        return self._at

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes; fewer at the end.

        Raises:
            tarfile.ReadError: they were not expected, or cannot be unpacked.
        """
        if not 0 <= count <= self._end - self._at:
            raise tarfile.ReadError("a header in the archive is too long, or leads elsewhere")
        try:
            piece: bytes = self._unpacked.read(count)
        except (OSError, pa.ArrowException) as fault:
            raise tarfile.ReadError(str(fault)) from None
        self._at += len(piece)
        self._on_read()
        return piece


def _checked(archive: tarfile.TarFile, stream: _Forwards, size: int, into: Path | None) -> CheckedBundle:
    """Check all files of a bundle of `size` bytes."""
    first = _next_file(archive, stream)
    root = first.name.removesuffix(f"/{MANIFEST}")
    if root == first.name or fault_of_paths([root]):
        raise InputError(f"is not a bundle of Millrace: {MANIFEST} was expected first, not {printable(first.name)!r}")
    if first.size > MOST_RECORD_BYTES:
        raise InputError(f"{MANIFEST} has {first.size:,} bytes, more than {MOST_RECORD_BYTES:,}")
    content = stream.read(first.size)
    manifest = _manifest_of(content, size)
    records: dict[str, bytes] = {}
    for entry in manifest.files:
        member = _next_file(archive, stream)
        if (member.name, member.size) != (f"{root}/{entry.path}", entry.bytes):
            instead = f"{printable(member.name)!r} of {member.size} bytes"
            raise InputError(f"expected the file {entry.path!r} of {entry.bytes} bytes, not {instead}")
        if into is None:
            file = cast("BufferedReader", archive.extractfile(member))
        else:
            with writing(into):
                archive.extract(member.replace(name=entry.path), into, filter="data")
            file = (into / entry.path).open("rb")
        with file:
            if RECORD.fullmatch(entry.path):
                records[entry.path] = file.read()
                digest = sha256(records[entry.path])
            else:
                digest = file_digest(file, "sha256")
        if digest.hexdigest() != entry.sha256:
            raise InputError(f"{entry.path}: its content differs from its checksum")
    stream.expect(MOST_END_BYTES)
    if len(rest := stream.read(MOST_END_BYTES)) == MOST_END_BYTES or any(rest):
        raise InputError("has more than the files of its manifest")
    record, runs = _check_records(manifest, records)
    return CheckedBundle(manifest, sha256(content).hexdigest(), record, runs)


def _next_file(archive: tarfile.TarFile, stream: _Forwards) -> tarfile.TarInfo:
    """Return the next file of an archive, whose content can be read then.

    Raises:
        InputError: there is none, but the end, a link, a folder or a device.
    """
    stream.expect(tarfile.BLOCKSIZE + MOST_HEADER_BYTES)
    member = archive.next()
    if member is None:
        raise InputError("is cut: it ends before the last file of its manifest")
    if not member.isreg() or member.issparse():
        name = f"{printable(member.name)!r}" + (f" to {printable(member.linkname)!r}" if member.linkname else "")
        raise InputError(f"{name} is no plain file; a bundle has no links, folders or devices")
    stream.expect(member.size)
    return member


def _manifest_of(content: bytes, size: int) -> Manifest:
    """Return the manifest of a bundle of `size` bytes.

    Raises:
        InputError: it is invalid or of an unknown version, or has unsafe names or too much content.
    """
    version = _decoded(MANIFEST, content, _Version).bundle_version
    if version != BUNDLE_VERSION:
        raise InputError(f"bundle_version is {version}; this version of Millrace reads {BUNDLE_VERSION}")
    manifest = _decoded(MANIFEST, content, Manifest)
    if unreadable := why_unreadable(manifest.results_version, printable(manifest.version)):
        raise InputError(f"results_version: {unreadable}")
    if unsafe := fault_of_paths([each.path for each in manifest.files]):
        raise InputError(f"{MANIFEST}: {unsafe}")
    if manifest.total_bytes > MOST_TIMES * size:
        raise InputError(f"would unpack to {manifest.total_bytes:,} bytes, more than {MOST_TIMES:,} times its own size")
    for entry in manifest.files:
        if RECORD.fullmatch(entry.path) and entry.bytes > MOST_RECORD_BYTES:
            raise InputError(f"{entry.path} has {entry.bytes:,} bytes, more than {MOST_RECORD_BYTES:,}")
    return manifest


def _check_records(manifest: Manifest, records: dict[str, bytes]) -> tuple[CampaignRecord, int]:
    """Return the record of the campaign and the number of runs.

    Raises:
        InputError: a file is missing or wrong, or more is missing than the manifest says.
    """
    paths = {entry.path for entry in manifest.files}
    for needed in (*OF_ITS_OWN, CAMPAIGN_FILE, SUMS, "report/tables"):
        if needed not in paths and not any(path.startswith(f"{needed}/") for path in paths):
            raise InputError(f"is not complete: it has no {needed}")
    if records[SUMS] != checksum_lines(manifest.files):
        raise InputError(f"{SUMS} has other checksums than the manifest")
    record = _decoded(CAMPAIGN_FILE, records[CAMPAIGN_FILE], CampaignRecord)
    files = {path.split("/")[1]: path for path in records if path.startswith("runs/")}
    runs = {name: _decoded(path, records[path], RunRecord) for name, path in files.items()}
    missing = missing_paths(record, runs, paths)
    if unsaid := sorted(set(missing) - set(manifest.missing)):
        raise InputError(f"is not complete: it has no {printable(unsaid[0])}, and its manifest does not say so")
    return record, len(runs)


def _decoded(file: str, content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise InputError(f"{file}: {printable(fault)}") from None


class _Version(msgspec.Struct):
    bundle_version: int


def remade_figures(folder: Path, out: Path) -> list[str]:
    """Draw the figures of the report in `folder` again into `out`; return the names of those that differ.

    Nothing but the tables and the records of runs is used: neither traces nor Spark.

    Args:
        folder: contains `campaign.json` and `report/tables`.
        out: where the whole report is made; an earlier one is replaced.

    Raises:
        InputError: there is no campaign, a table is missing or damaged, or `out` holds something else than a report.
        UnfitError: the report cannot be written.
    """
    # Drawing takes long to import, and checks draw nothing.
    from analysis.page.build import build
    from analysis.page.render import REPORT

    results = Results(folder)
    if out.resolve() == (folder / "report").resolve():
        raise InputError(f"{out}: is the report itself; give another folder")
    tables = {name: _rows(results, name) for name in SPARK_COLUMNS}
    campaign = load_campaign(folder)
    ranked = results.table("ranking").to_arrow().to_pylist() if "ranking" in results.tables else []
    baseline = next((row["baseline"] for row in ranked), None) or None
    with replacing_folder(out, REPORT) as made:
        build(campaign, tables, made, campaign.baseline(baseline), lambda _line: None)
    before, after = (
        {path.name: path.read_bytes() for path in (each / "figures").glob("*.svg")} for each in (folder / "report", out)
    )
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _rows(results: Results, name: str) -> Rows:
    """Return the rows of a table of the Spark job.

    Raises:
        InputError: another version made the report: the table or a column is missing.
    """
    table = results.table(name).to_arrow() if name in results.tables else None
    present = table.column_names if table is not None else ()
    if table is None or (absent := [column for column in SPARK_COLUMNS[name] if column not in present]):
        what = f"the column {absent[0]!r} of the table {name!r}" if table is not None else f"the table {name!r}"
        again = f"build it again with: millrace report {results.folder}"
        raise InputError(f"{results.folder}: the report of another version, without {what}; {again}")
    # Missing text is empty here, which figures do not distinguish.
    rows: Rows = table.to_pylist()
    return rows
