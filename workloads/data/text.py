"""Text: its preparation as a file with one record per line, from books or documentation, and the spout that reads it.

Records are either the lines of the text, blank ones included, so that record numbers are line numbers, or its words. A
word, everywhere in Millrace, is a maximal run of characters that are not white space (`str.split`): no case folding, no
stripping of punctuation, as Storm's starter examples do it and as `wc -w` counts. A line ends at LF, CR LF or CR and
nowhere else. Several files are read one after another, each ending its last line.

Record g of the endless input is record `g mod R` of the R prepared ones. Executor i of n emits the records i, i + n,
i + 2n, ...; its position is the number of records emitted.
"""

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from inventory.atomic_files import replace_file
from inventory.errors import InputError, UnfitError
from workloads.columns import ColumnSpout
from workloads.operators import Context, Row, Spout
from workloads.workload import PreparedInput, filled

if TYPE_CHECKING:
    import pyarrow as pa

Unit = Literal["lines", "words"]
Source = str | tuple[str, ...]
"""A text file or a folder of them (`.gz` is unpacked), several of these, or `""` for CPython's documentation."""


@dataclass(frozen=True)
class TextParams:
    """Parameters of a workload over text.

    Attributes:
        text: a text file or a folder of them (also `.gz`), or a list of these; empty: CPython's documentation.
        parallelism: executors per component; components left out keep their default.
        ackers: executors of the acking component.
        workers: requested slots.
    """

    text: Source = ""
    parallelism: Mapping[str, int] = field(default_factory=dict)
    ackers: Annotated[int, Meta(ge=0)] = 3
    workers: Annotated[int, Meta(ge=1)] = 5

    defaults: ClassVar[Mapping[str, int]]
    """The workload's own executors per component."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parallelism", filled(self.parallelism, self.defaults))


MOST_BYTES = 128 * 1024 * 1024
"""Maximum size of a text: every worker keeps it in memory, and it is replayed in a loop anyway."""

MOST_CHARACTERS = 1 << 20
"""Maximum length of a record, which must fit into a frame of the data plane."""

MOST_EMITTED = 16 * 1024 * 1024
"""Bytes of the lines that a source of columns emits at once; rows share the lines, columns have copies."""

MOST_COPIED = 4 * 1024 * 1024
"""Bytes of a text up to which every source of columns has a copy of its own records, which it emits without copying."""

_FORMAT = b"1"
"""Part of a prepared file's name; change it whenever the same source would give other records."""


class _Summary(Struct, frozen=True, forbid_unknown_fields=True):
    """Checksum and number of records, stored beside a prepared file."""

    sha256: str
    records: int


def prepare_text(source: Source, unit: Unit, folder: Path, name: str = "text") -> PreparedInput:
    """Ensure that `folder` contains the prepared text, and describe it.

    A prepared file with the right checksum is reused. Files are written atomically.

    Args:
        source: source of the text.
        unit: kind of record.
        folder: kept between runs; created if missing.
        name: name of the input for operators.

    Raises:
        InputError: the text cannot be read, is not UTF-8, is too large, or has no word in it.
        UnfitError: the folder cannot be written, or this Python came without its documentation.
    """
    texts, origin = _read(source)
    stamp = sha256(_FORMAT)
    for _, contents in texts:
        stamp.update(len(contents).to_bytes(8, "big") + contents)
    path = folder / f"{unit}-{stamp.hexdigest()[:24]}.txt"
    summary = _kept(path)
    if summary is None:
        records = [record for place, contents in texts for record in _records(place, contents, unit)]
        if not any(record and not record.isspace() for record in records):
            raise InputError(f"text: {origin} has no word in it")
        prepared = "".join([record + "\n" for record in records]).encode()
        summary = _Summary(sha256(prepared).hexdigest(), len(records))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, prepared)
            replace_file(_beside(path), msgspec.json.encode(summary))
        except OSError as fault:
            raise UnfitError(f"{folder}: the prepared text cannot be written: {fault.strerror}") from None
    return PreparedInput(name, path, summary.sha256, summary.records, origin)


def read_records(path: Path) -> list[str]:
    """Return the records of a prepared file, in order."""
    return path.read_bytes().decode().split("\n")[:-1]


def _read(source: Source) -> tuple[list[tuple[str, bytes]], str]:
    """Return all of the source as (place, raw bytes, unpacked), and one line about its origin."""
    if source == "":
        return [("pydoc_data.topics", _documentation())], (
            f"documentation topics of CPython {sys.version.partition(' ')[0]} (pydoc_data.topics)"
        )
    named = (source,) if isinstance(source, str) else source
    if not all(named) or not named:
        raise InputError(f"text: got {list(named)}, expected the paths of one or more files or folders")
    paths = [path for text in named for path in _files(Path(text))]
    texts: list[tuple[str, bytes]] = []
    left = MOST_BYTES
    for path in paths:
        contents = _bytes_of(path, left)
        left -= len(contents)
        texts.append((str(path), contents))
    files = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    return texts, f"{', '.join(named)} ({files})"


def _documentation() -> bytes:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise UnfitError(
            "this Python was installed without its documentation (pydoc_data), the default text; name one by 'text'"
        ) from None
    return "\n".join(text for _, text in sorted(topics.items())).encode()


def _files(path: Path) -> Iterator[Path]:
    """Yield the file itself, or all files below a folder in the order of their paths, except hidden ones."""
    try:
        if path.is_file():
            yield path
            return
        if not path.exists():
            raise InputError(f"text: {path} does not exist")
        if not path.is_dir():
            raise InputError(f"text: {path} is neither a file nor a folder")
        inside = [p for p in sorted(path.rglob("*")) if p.is_file() and not _hidden(p.relative_to(path))]
    except OSError as fault:
        raise InputError(f"text: {path} cannot be read: {fault.strerror}") from None
    if not inside:
        raise InputError(f"text: the folder {path} has no file in it")
    yield from inside


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _bytes_of(path: Path, most: int) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            contents: bytes = file.read(most + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
        raise InputError(f"text: {path} is not a whole gzip file: {fault}") from None
    except OSError as fault:
        raise InputError(f"text: {path} cannot be read: {fault.strerror}") from None
    if len(contents) > most:
        raise InputError(f"text: with {path} the text takes more than {MOST_BYTES >> 20} MB, the most that is allowed")
    return contents


def _records(place: str, data: bytes, unit: Unit) -> Sequence[str]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        # utf-8-sig counts from after the byte order mark.
        at = fault.start + (len(data) - len(fault.object))
        line = data.count(b"\n", 0, at) + 1
        raise InputError(f"text: {place} is not UTF-8: byte {at} (line {line}) is 0x{data[at]:02x}") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.removesuffix("\n").split("\n") if text else []
    longest = max(map(len, lines), default=0)
    if longest > MOST_CHARACTERS:
        number = next(n for n, line in enumerate(lines, 1) if len(line) == longest)
        raise InputError(f"text: line {number} of {place} has {longest} characters, the most is {MOST_CHARACTERS}")
    return lines if unit == "lines" else text.split()


def _kept(path: Path) -> _Summary | None:
    """Return the summary of an existing and complete prepared file, or None."""
    try:
        summary = msgspec.json.decode(_beside(path).read_bytes(), type=_Summary)
        whole = sha256(path.read_bytes()).hexdigest() == summary.sha256
    except (OSError, msgspec.DecodeError):
        return None
    return summary if whole else None


def _beside(path: Path) -> Path:
    return path.with_suffix(".json")


class LineSpout(Spout):
    """Emits the records of the prepared input `text` as rows of one field, in a loop.

    Attributes:
        position: records emitted since the beginning, before a restore included.
    """

    position: int
    _at: int

    def open(self, context: Context) -> None:
        self._records = self.load(Path(context.inputs["text"]))
        self._index, self._step = context.index, context.parallelism
        self.seek(0)

    def load(self, path: Path) -> int:
        """Load the prepared text; return its number of records."""
        self._rows = _of_file(_rows, path)
        return len(self._rows)

    def next_batch(self, limit: int) -> Sequence[Row]:
        rows, step, at = self._rows, self._step, self._at
        batch = rows[at : at + limit * step : step]
        at += len(batch) * step
        while len(batch) < limit:
            at %= len(rows)
            more = rows[at : at + (limit - len(batch)) * step : step]
            batch += more
            at += len(more) * step
        self._at = at
        self.position += limit
        return batch

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.position)

    def restore(self, state: bytes) -> None:
        self.seek(msgspec.msgpack.decode(state, type=int))

    def seek(self, position: int) -> None:
        self.position = position
        self._at = (self._index + position * self._step) % self._records


class ColumnLineSpout(LineSpout, ColumnSpout):
    """`LineSpout` of columns, which keeps the text as an Arrow array, a short one in the order of its own records."""

    column: ClassVar = "line"
    """Name of the field."""

    _own: "pa.Array | None" = None

    def open(self, context: Context) -> None:
        super().open(context)
        if self._lines.nbytes <= MOST_COPIED:
            self._own = self._next(self._records // gcd(self._records, self._step))
            self.seek(0)

    def load(self, path: Path) -> int:
        import pyarrow.compute as pc

        self._lines = _of_file(_lines, path)
        # With 4 bytes for the offset of each.
        self._most = max(1, (MOST_EMITTED - 4) // (4 + pc.max(pc.binary_length(self._lines)).as_py()))
        return len(self._lines)

    def next_columns(self, limit: int) -> "pa.RecordBatch":
        import pyarrow as pa

        return pa.RecordBatch.from_arrays([self._take(limit)], names=[self.column])

    def next_batch(self, limit: int) -> Sequence[Row]:
        return list(zip(self._take(limit).to_pylist()))

    def _take(self, limit: int) -> "pa.Array":
        limit, own = min(limit, self._most), self._own
        if own is None or limit > len(own):
            return self._next(limit)
        first = self.position % len(own)
        lines = own.slice(first, limit)
        if first + limit > len(own):
            import pyarrow as pa

            lines = pa.concat_arrays([lines, own.slice(0, first + limit - len(own))])
        self.seek(self.position + limit)
        return lines

    def _next(self, limit: int) -> "pa.Array":
        import numpy as np

        lines = self._lines.take((self._at + np.arange(limit) * self._step) % self._records)
        self.seek(self.position + limit)
        return lines


T = TypeVar("T")


def _of_file(load: Callable[[Path, int, int], T], path: Path) -> T:
    status = path.stat()
    return load(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _lines(path: Path, size: int, mtime_ns: int) -> "pa.Array":
    """Return the records as a column, shared like `_rows`, without a Python string for each."""
    import numpy as np
    import pyarrow as pa

    text = path.read_bytes()
    # Every record ends with a line end, which is left out: record i has i of them before it.
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text.replace(b"\n", b""))]
    return pa.Array.from_buffers(pa.string(), len(ends), buffers)


@lru_cache(maxsize=1)
def _rows(path: Path, size: int, mtime_ns: int) -> list[Row]:
    """Return the records as rows, shared by the spouts of one worker; a changed file is read again."""
    return list(zip(read_records(path)))


def times_emitted(records: int, positions: Sequence[int]) -> list[int]:
    """Return how often each of `records` prepared records was emitted when executor i is at `positions[i]`.

    After R / gcd(R, n) records an executor is back at its first one and has emitted each record whose number is its own
    modulo gcd(R, n) exactly once; so only the unfinished cycle is walked.
    """
    n = len(positions)
    stride = gcd(records, n)
    cycle = records // stride
    times = [0] * records
    for index, position in enumerate(positions):
        cycles, rest = divmod(position, cycle)
        if cycles:
            for record in range(index % stride, records, stride):
                times[record] += cycles
        for record in range(index, index + rest * n, n):
            times[record % records] += 1
    return times
