"""Format of a bundle: a campaign's results in one compressed archive.

A bundle is a tar archive (POSIX pax) compressed by zstd, with one top folder. Its first file is the manifest; the
others follow in the order of the manifest, and nothing else does. Headers have no freedom: name and size are those of
the manifest, and all other fields are constants. A reader therefore compares each header with the expected one, and
needs no rules for links, devices, absolute names, duplicates or anything else that tar allows.
"""

import tarfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from types import TracebackType

import msgspec
import pyarrow as pa
from msgspec import Struct

from analysis.records.descriptions import why_unreadable
from inventory.errors import InputError
from inventory.foreign import printable
from inventory.parsing import first_repeated

BUNDLE_VERSION = 1
MANIFEST = "MANIFEST.json"

BLOCK = 512
END = bytes(2 * BLOCK)
CHUNK = 1 << 20

MOST_MANIFEST_BYTES = 64 << 20
MOST_TIMES = 1000
"""Largest accepted ratio of content to archive: that of traces and logs is below 50, that of zeros above 10,000."""

CODEC = "zstd"


class BundledFile(Struct, frozen=True):
    """A file of the bundle: path below the top folder, size and checksum."""

    path: str
    bytes: int
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


def header(path: str, size: int) -> bytes:
    """Return the only valid header of a file in a bundle."""
    info = tarfile.TarInfo(path)
    info.size, info.mode, info.mtime = size, 0o644, 0
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def padding(size: int) -> bytes:
    """Return the zeros that follow a file of this size."""
    return bytes(-size % BLOCK)


def fault_of_path(path: str) -> str:
    """Return why a path cannot be part of a bundle; empty if it can.

    >>> fault_of_path("runs/001/run.json"), fault_of_path("../x")
    ('', 'leads out of its folder')
    """
    if len(path) > 1000 or printable(path) != path:
        return "is too long or has characters that cannot be shown"
    parts = path.split("/")
    if parts[0] == "" or ".." in parts:
        return "leads out of its folder"
    if "" in parts or "." in parts:
        return "is not a plain path"
    return ""


def fault_of_paths(paths: Sequence[str]) -> str:
    """Return the first fault of the paths of a bundle: one that is unsafe, occurs twice, or is a folder of another."""
    for path in paths:
        if fault := fault_of_path(path):
            return f"the name {printable(path)!r} {fault}"
    if twice := first_repeated([MANIFEST, *paths]):
        return f"the name {twice!r} occurs twice"
    files, folders = set(paths), set[str]()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in folders:
            if above in files:
                return f"{above!r} is a file and a folder"
            folders.add(above)
            above = above.rpartition("/")[0]
    return ""


KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.DIRTYPE: "a folder",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.REGTYPE: "the file",
}


def _described(block: bytes) -> str:
    """Return what a header describes, for errors."""
    if block == bytes(BLOCK):
        return "the end of the archive"
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
    except tarfile.HeaderError:
        return "damaged"
    target = f" to {printable(info.linkname)!r}" if info.linkname else ""
    return f"{KINDS.get(info.type, 'a special entry')} {printable(info.name)!r}{target}, {info.size} bytes"


class BundleReader:
    """Strict reader of a bundle, in one pass; nothing is written, and memory is bounded.

    Attributes:
        manifest: the manifest.
        sha256: checksum of the manifest, and so of the whole content.
        position: number of bytes read, of `manifest.total_bytes`.
    """

    def __init__(self, path: Path) -> None:
        """Open a bundle and read its manifest.

        Raises:
            InputError: it is no bundle, or one of another version.
        """
        self.path = path
        if not path.is_file():
            raise self._error("is not a file" if path.exists() else "there is no such file")
        self.position = 0
        try:
            self._size = path.stat().st_size
            self._stream = pa.CompressedInputStream(pa.OSFile(str(path)), CODEC)
        except OSError as fault:
            raise self._error(f"cannot be read: {fault.strerror or fault}") from None
        try:
            self._root, data = self._read_manifest()
            self.sha256 = sha256(data).hexdigest()
            self.manifest = self._checked_manifest(data)
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> "BundleReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def files(self) -> Iterator[tuple[BundledFile, Iterator[bytes]]]:
        """Yield every file with its content, which must be consumed before the next file is.

        Raises:
            InputError: the archive differs from its manifest.
        """
        for entry in self.manifest.files:
            self._check_header(entry.path, entry.bytes)
            yield entry, self._content(entry)
            if any(self._exactly(len(padding(entry.bytes)))):
                raise self._error(f"{entry.path}: is followed by other data")
        if (found := self._exactly(len(END))) != END:
            raise self._error(f"after the last file of the manifest, the archive has {_described(found[:BLOCK])}")
        if self._some(1):
            raise self._error("has data behind its end")

    def _content(self, entry: BundledFile) -> Iterator[bytes]:
        left, digest = entry.bytes, sha256()
        while left:
            data = self._some(min(left, CHUNK))
            if not data:
                raise self._error(f"{entry.path}: the bundle is cut here")
            left -= len(data)
            self.position += len(data)
            digest.update(data)
            yield data
        if digest.hexdigest() != entry.sha256:
            raise self._error(f"{entry.path}: its content differs from its checksum")

    def _read_manifest(self) -> tuple[str, bytes]:
        """Return the name of the top folder, and the manifest."""
        block = self._exactly(BLOCK)
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError):
            raise self._error("is not a bundle of Millrace: it does not begin with a file of tar") from None
        root, _, name = info.name.partition("/")
        if name != MANIFEST or fault_of_path(root) or header(info.name, max(info.size, 0)) != block:
            raise self._error(f"is not a bundle of Millrace: {MANIFEST} was expected first, not {_described(block)}")
        if info.size > MOST_MANIFEST_BYTES:
            raise self._error(f"{MANIFEST} has {info.size:,} bytes, more than {MOST_MANIFEST_BYTES:,}")
        data = self._exactly(info.size)
        if any(self._exactly(len(padding(info.size)))):
            raise self._error(f"{MANIFEST}: is followed by other data")
        return root, data

    def _checked_manifest(self, data: bytes) -> Manifest:
        try:
            version = msgspec.json.decode(data, type=_Version).bundle_version
            if version != BUNDLE_VERSION:
                raise self._error(f"bundle_version is {version}; this version of Millrace reads {BUNDLE_VERSION}")
            manifest = msgspec.json.decode(data, type=Manifest)
        except (msgspec.DecodeError, RecursionError) as fault:
            raise self._error(f"{MANIFEST}: {printable(fault)}") from None
        if unreadable := why_unreadable(manifest.results_version, printable(manifest.version)):
            raise self._error(f"results_version: {unreadable}")
        if unsafe := fault_of_paths([each.path for each in manifest.files]):
            raise self._error(f"{MANIFEST}: {unsafe}")
        if negative := next((each.path for each in manifest.files if each.bytes < 0), None):
            raise self._error(f"{MANIFEST}: {negative}: a negative size")
        if manifest.total_bytes > MOST_TIMES * self._size:
            raise self._error(
                f"would unpack to {manifest.total_bytes:,} bytes, more than {MOST_TIMES:,} times its own size"
            )
        return manifest

    def _check_header(self, path: str, size: int) -> None:
        expected = header(f"{self._root}/{path}", size)
        found = self._exactly(len(expected))
        if found != expected:
            # Long names have a header of their own before that of the file.
            raise self._error(f"expected the file {path!r} of {size} bytes, not {_described(found[-BLOCK:])}")

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            data = self._some(min(count, CHUNK))
            if not data:
                raise self._error("the bundle is cut")
            count -= len(data)
            parts.append(data)
        return b"".join(parts)

    def _some(self, count: int) -> bytes:
        """Return up to `count` bytes; none at the end."""
        try:
            data: bytes = self._stream.read(count)
        except (OSError, pa.ArrowException) as fault:
            raise self._error(f"is cut or damaged: {printable(fault)}") from None
        return data

    def _error(self, message: str) -> InputError:
        return InputError(f"{printable(self.path)}: {message}")


class _Version(Struct):
    bundle_version: int
