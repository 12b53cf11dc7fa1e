"""Files of a raw recording, and their bytes in blocks of whole lines.

A line ends at LF or CR LF; a byte order mark before the first line is not part of it. Compressed files are recognised
by content, not by name.
"""

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from inventory.errors import InputError

BLOCK_BYTES = 2 * 1024 * 1024
"""Raw bytes processed at a time, few enough for their memory to be reused; no line may be longer."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)


def recording_files(source: Path) -> list[Path]:
    """Return the file itself, or the files below a folder by name, without hidden files and Spark's own.

    Raises:
        InputError: there is no file, or the folder cannot be read.
    """
    try:
        if source.is_file():
            return [source]
        if not source.is_dir():
            raise InputError(f"{source}: neither a file nor a folder" if source.exists() else f"{source}: not there")
        files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    except OSError as fault:
        raise InputError(f"{source}: cannot be read: {fault.strerror}") from None
    parts = [path for path in files if not any(name[0] in "._" for name in path.relative_to(source).parts)]
    if not parts:
        raise InputError(f"{source}: the folder has no file in it")
    return parts


def is_parquet(path: Path) -> bool:
    """Return whether a file is a Parquet file.

    Raises:
        InputError: it cannot be read.
    """
    return _head(path, len(_PARQUET)) == _PARQUET


def is_gzip(path: Path) -> bool:
    """Return whether a file is compressed.

    Raises:
        InputError: it cannot be read.
    """
    return _head(path, len(_GZIP)) == _GZIP


def blocks(path: Path, begin: int = 0, end: int | None = None) -> Iterator[tuple[bytes, int]]:
    """Yield the uncompressed content of a file in blocks of whole lines that end at LF, with the bytes read so far.

    Args:
        path: of the file.
        begin, end: range of bytes in which lines begin, `end` excluded, for a file that is not compressed; neither is
            inside the byte order mark.

    Raises:
        InputError: it cannot be read, is a damaged gzip file, or is not text.
    """
    packed = is_gzip(path)
    lines, head = 0, not begin
    try:
        with path.open("rb") as raw, gzip.open(raw) if packed else raw as file:
            for block in _whole_lines(path, file, begin, sys.maxsize if end is None else end):
                if head and b"\0" in block:
                    line = block.count(b"\n", 0, block.index(b"\0")) + 1
                    raise InputError(f"{path}:{line}: not text: it has a byte of value 0")
                # Only compressed files can be damaged, and counting takes as long as reading.
                lines += block.count(b"\n") if packed else 0
                head = False
                yield block, raw.tell()
    except _DAMAGE as fault:
        # A piece that includes damaged data is lost completely.
        whole = _lines_that_can_be_read(path, lines, BLOCK_BYTES if isinstance(fault, EOFError) else 1)
        # The checksum follows the data that it covers.
        where = f"in lines 1 to {whole}" if str(fault).startswith("CRC check failed") else f"behind line {whole}"
        raise InputError(f"{path}: not a whole gzip file, damaged {where}: {fault}") from None
    except OSError as fault:
        raise InputError(f"{path}: cannot be read: {fault.strerror}") from None


def _lines_that_can_be_read(path: Path, known: int, piece_bytes: int) -> int:
    """Return the number of readable lines of a damaged gzip file: `known` in whole blocks, others piece by piece."""
    lines = 0
    with suppress(*_DAMAGE), gzip.open(path) as file:
        if known:
            file.read(len(BYTE_ORDER_MARK))
        while lines < known:
            lines += file.read(BLOCK_BYTES).count(b"\n")
        while piece := file.read1(piece_bytes):
            lines += piece.count(b"\n")
    return lines


def _whole_lines(path: Path, file: IO[bytes] | gzip.GzipFile, begin: int, end: int) -> Iterator[bytes]:
    if begin:
        # Skip the rest of a line that begins before.
        file.seek(begin - 1)
        rest = b""
        at = begin - 1 + len(file.readline())
    else:
        rest = file.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK)
        at = file.tell()
    while at < end and (piece := file.read(min(BLOCK_BYTES, end - at))):
        at += len(piece)
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield _unix(rest + piece[:cut])
            rest = piece[cut:]
        else:
            rest += piece
            _check_length(path, rest)
    if rest:
        # The last of these lines may end after `end`.
        rest += file.readline(BLOCK_BYTES + 1)
        _check_length(path, rest)
        yield _unix(rest if rest.endswith(b"\n") else rest + b"\n")


def _check_length(path: Path, line: bytes) -> None:
    if len(line) > BLOCK_BYTES:
        raise InputError(f"{path}: not text: a line of more than {BLOCK_BYTES >> 20} MB")


def _unix(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block


def _head(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as fault:
        raise InputError(f"{path}: cannot be read: {fault.strerror}") from None
