"""Class data sharing (CDS) archives of Spark's classes, kept between jobs.

Loading and verifying about fifteen thousand classes takes a quarter of the CPU time of a small job. Java can write them
to an archive at exit and map it the next time. Writing costs more than one job saves, so only long jobs write it.
Java ignores an archive that does not match it. It writes none when Spark has a configuration folder: that folder is in
the class path, and CDS does not support non-empty folders there.

Every Spark installation of this user has its own archive, because it contains the paths of the jar files. Archives
whose Spark or Java no longer exists are removed when the next one is written.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

from inventory.atomic_folder import replacing

_ARCHIVE, _MADE_BY = "classes.jsa", "made-by"
# Java's warnings about classes that cannot be archived are irrelevant.
_QUIET = "-Xlog:disable"


@dataclass(frozen=True)
class Classes:
    """Java options for the archive.

    Attributes:
        options: Java options.
        made: whether Java writes the archive at exit.
    """

    options: Sequence[str] = ()
    made: bool = False


@contextmanager
def kept_classes(environment: Mapping[str, str], make: bool) -> Iterator[Classes]:
    """Yield the options to use the archive, or to write one by the end of the block.

    Args:
        environment: with JAVA_HOME and SPARK_HOME.
        make: whether to write a missing archive. It is kept when the block ends without an error.
    """
    home = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace" / "spark-classes"
    java, spark = Path(environment["JAVA_HOME"]), Path(environment["SPARK_HOME"])
    folder = home / sha256(f"{java}\n{spark}".encode()).hexdigest()[:16]
    made_by = f"{_stamp(java, spark)}\n{java}\n{spark}"
    if _text(folder / _MADE_BY) == made_by:
        # Not every Java can write one.
        there = (folder / _ARCHIVE).is_file()
        yield Classes((_QUIET, f"-XX:SharedArchiveFile={folder / _ARCHIVE}") if there else ())
    elif make and _writable(home) and not _has_settings(environment):
        _remove_abandoned(home)
        with replacing(folder) as fresh:
            yield Classes((_QUIET, f"-XX:ArchiveClassesAtExit={fresh / _ARCHIVE}"), made=True)
            (fresh / _MADE_BY).write_text(made_by, encoding="utf-8")
    else:
        yield Classes()


def _stamp(java: Path, spark: Path) -> str:
    """Return a digest that changes whenever Java or Spark changes."""
    files = [java / "release", java / "bin" / "java", *sorted((spark / "jars").glob("*.jar"))]
    known = [(str(file), (status := file.stat()).st_size, status.st_mtime_ns) for file in files if file.exists()]
    return sha256(repr(known).encode()).hexdigest()


def _remove_abandoned(home: Path) -> None:
    """Remove archives whose Spark or Java no longer exists; archives being written have names with a dot."""
    for path in home.glob("[!.]*"):
        _, *made_by = _text(path / _MADE_BY).split("\n")
        if made_by and all(Path(each).is_dir() for each in made_by):
            continue
        if path.is_dir():
            rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _has_settings(environment: Mapping[str, str]) -> bool:
    folder = Path(environment.get("SPARK_CONF_DIR") or Path(environment["SPARK_HOME"]) / "conf")
    return folder.is_dir() and any(folder.iterdir())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
