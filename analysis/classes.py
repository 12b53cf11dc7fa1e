"""Spark's classes as Java lays them out in memory, kept between jobs.

To load and verify some fifteen thousand classes takes a quarter of the CPU time of a small job. Java can write them to
an archive when it ends, and map it the next time. Writing it costs more than it saves once, so that only long jobs do.
Java sees by itself whether an archive fits it, and goes without one that does not. It makes none where Spark has a
folder of settings: that is in its class path, in which it takes no folder with files.

Every Spark of this user has an archive of its own: the paths of its files are part of it, so that another checkout
cannot use it. One whose Spark or Java is gone is removed when the next one is made.
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
# What Java says of classes that it cannot keep concerns nobody.
_QUIET = "-Xlog:disable"


@dataclass(frozen=True)
class Classes:
    """What Java is told of the archive.

    Attributes:
        options: of Java.
        made: whether it makes the archive when it ends.
    """

    options: Sequence[str] = ()
    made: bool = False


@contextmanager
def kept_classes(environment: Mapping[str, str], make: bool) -> Iterator[Classes]:
    """Have Java take its classes from the archive, or make one until the end of the block.

    Args:
        environment: with JAVA_HOME and SPARK_HOME.
        make: whether to make one that is missing. It is kept when the block ends well.
    """
    home = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace" / "spark-classes"
    java, spark = Path(environment["JAVA_HOME"]), Path(environment["SPARK_HOME"])
    folder = home / sha256(f"{java}\n{spark}".encode()).hexdigest()[:16]
    made_by = f"{_stamp(java, spark)}\n{java}\n{spark}"
    if _text(folder / _MADE_BY) == made_by:
        # Not every Java can make one.
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
    """Changes whenever Java or Spark does."""
    files = [java / "release", java / "bin" / "java", *sorted((spark / "jars").glob("*.jar"))]
    known = [(str(file), (status := file.stat()).st_size, status.st_mtime_ns) for file in files if file.exists()]
    return sha256(repr(known).encode()).hexdigest()


def _remove_abandoned(home: Path) -> None:
    """Remove archives whose Spark or Java is not there any more; what is being made has a name with a dot."""
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
