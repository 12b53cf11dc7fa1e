"""Spark jobs, each started by `spark-submit` in a separate process.

Loading and verifying Spark's fifteen thousand classes takes a quarter of the CPU time of a small job. Java can write
them to an archive for class data sharing (CDS) at exit and map it the next time. Writing costs more than one job
saves, so only long jobs write it. Java ignores an archive that does not match it. It writes none when Spark has a
configuration folder: that folder is in the class path, and CDS does not support non-empty folders there. Every Spark
installation of this user has its own archive, because it contains the paths of the jar files. Archives whose Spark or
Java no longer exists are removed when the next one is written.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from shutil import rmtree

from analysis.tables.java import spark_environment
from inventory.atomic_files import replacing_folder
from inventory.errors import InputError, MillraceError, RunError, UnfitError
from inventory.parent_death import end_with, signals_held

_ARCHIVE, _MADE_BY = "classes.jsa", "made-by"
# Java's warnings about classes that cannot be archived are irrelevant.
_QUIET = "-Xlog:disable"


@dataclass(frozen=True)
class ClassArchive:
    """Java options for the archive.

    Attributes:
        options: Java options.
        made: whether Java writes the archive at exit.
    """

    options: Sequence[str] = ()
    made: bool = False


@contextmanager
def kept_classes(environment: Mapping[str, str], make: bool) -> Iterator[ClassArchive]:
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
        yield ClassArchive((_QUIET, f"-XX:SharedArchiveFile={folder / _ARCHIVE}") if there else ())
    elif make and _writable(home) and not _has_settings(environment):
        _remove_abandoned(home)
        with replacing_folder(folder) as fresh:
            yield ClassArchive((_QUIET, f"-XX:ArchiveClassesAtExit={fresh / _ARCHIVE}"), made=True)
            (fresh / _MADE_BY).write_text(made_by, encoding="utf-8")
    else:
        yield ClassArchive()


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


LOCAL = "local[*]"
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options for jobs that end before the optimising compiler pays off."""

PRIVATE = {"spark.authenticate": "true", "spark.io.encryption.enabled": "true"}
"""Settings of jobs on this host. Without them Spark reads Java objects from every user who connects, sends them blocks
of data, and writes temporary files that they can read. A cluster has settings, and a secret, of its own."""

_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|spark://.+|yarn|k8s://.+")
_LOGGING = Path(__file__).parent / "log4j2.properties"
_PATIENCE_S = 5.0
_DEATH_S = 1.0
"""Timeout for killed processes to disappear; in some containers no init process reaps them."""
_KEPT_LINES = 400


@dataclass(frozen=True)
class Job:
    """A Spark job.

    Attributes:
        name: its product, for messages.
        script: the program.
        arguments: arguments of the program.
        progress: prefix of its progress lines; lines with `millrace: ` are errors.
        output: folder of its product; its own output goes to a new file beside it when it fails for an unknown reason.
        java: Java options.
        settings: Spark settings.
        long: whether it takes long enough to also write the archive of Spark's classes for later jobs.
    """

    name: str
    script: Path
    arguments: Sequence[str]
    progress: str
    output: Path
    java: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    long: bool = False


def check_master(master: str | None) -> None:
    """Check a Spark master; None stands for `LOCAL`.

    Raises:
        InputError: it is not a valid Spark master.
    """
    if master is not None and not _MASTER.fullmatch(master):
        raise InputError(f"--master: got {master!r}, expected local[N], spark://HOST:PORT, yarn or k8s://URL")


def is_local(master: str) -> bool:
    """Return whether a Spark master stands for this host's cores."""
    return master.startswith("local")


def submit(job: Job, master: str | None, on_progress: Callable[[str], None]) -> None:
    """Run the job to its end.

    Args:
        job: the job.
        master: Spark master; default is this host's cores.
        on_progress: called with its lines of progress.

    Raises:
        InputError: the job reports it, or the master is not a valid Spark master.
        UnfitError: Spark or Java is missing, Spark does not start, or the job reports it.
        RunError: the job failed; the message names the file with its output.
    """
    check_master(master)
    environment = spark_environment()
    if is_local(master or LOCAL):
        # Otherwise Spark resolves this host's name, which fails on a laptop without a network.
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    # From there on the job itself reports progress.
    on_progress(f"{job.progress}starting Java")
    with kept_classes(environment, make=job.long) as classes:
        command = _command(job, Path(environment["SPARK_HOME"]), master or LOCAL, classes.options)
        if classes.made:
            on_progress(
                f"{job.progress}Spark's classes are kept for later jobs: this one takes some seconds more at its end"
            )
        _carry_out(job, command, environment, on_progress)


def _carry_out(job: Job, command: list[str], environment: dict[str, str], on_progress: Callable[[str], None]) -> None:
    kept: list[str] = []
    with _started(command, environment) as (process, lines):
        for line in lines:
            if line.startswith(job.progress):
                on_progress(line.rstrip())
            elif len(kept) < _KEPT_LINES:
                kept.append(line)
    if process.returncode != 0:
        raise _failure(job, process.returncode, kept)


def _command(job: Job, spark: Path, master: str, classes: Sequence[str]) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    settings = {
        **(PRIVATE if is_local(master) else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join([logging, *classes, *job.java]),
        **job.settings,
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return [str(spark / "bin" / "spark-submit"), "--master", master, *conf, str(job.script), *job.arguments]


@contextmanager
def _started(command: list[str], environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """Yield the job's process and its output; when the block is left early, end the process and its children.

    The job runs in its own session, so that Ctrl-C reaches this process only.
    """
    with signals_held() as let_through:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=end_with(os.getpid(), let_through),
        )
        try:
            let_through()
            yield process, iter(process.stdout or ())
            process.wait()
        finally:
            # Java may end before the program that it has started.
            with suppress(ProcessLookupError):
                for number, seconds in ((signal.SIGTERM, _PATIENCE_S), (signal.SIGKILL, _DEATH_S)):
                    os.killpg(process.pid, number)
                    _await_end_of_group(process, seconds)
            if process.stdout is not None:
                process.stdout.close()


def _await_end_of_group(process: subprocess.Popen[str], seconds: float) -> None:
    """Return after `seconds`.

    Raises:
        ProcessLookupError: the process and all that it has started have ended.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        process.poll()
        os.killpg(process.pid, 0)
        time.sleep(0.01)


def _failure(job: Job, status: int, lines: list[str]) -> MillraceError:
    """Return the error of a job that ended with `status`: its own message, or where its output is."""
    kinds: dict[int, type[MillraceError]] = {kind.exit_status: kind for kind in (InputError, UnfitError)}
    said, of_spark = (
        [line.removeprefix(prefix).strip() for line in lines if line.startswith(prefix)]
        for prefix in ("millrace: ", "spark: ERROR ")
    )
    if said and status in kinds:
        return kinds[status]("; Spark's last error: ".join([said[-1], *of_spark[-1:]]))
    failed = f"{job.name}'s Spark job failed with status {status}"
    try:
        log = _write_log(job.output, "".join(lines))
    except OSError as fault:
        return RunError(f"{failed}, and {fault.filename} cannot be written: {fault.strerror}")
    return RunError(f"{failed}; its output is in {log}")


def _write_log(output: Path, text: str) -> Path:
    """Write the output of a job to a new file: `NAME.log`, or the first free one of `NAME-2.log`, ...; return it."""
    for number in count(1):
        log = output.with_name(f"{output.name}{f'-{number}' if number > 1 else ''}.log")
        with suppress(FileExistsError), log.open("x", encoding="utf-8") as file:
            file.write(text)
            return log
    raise AssertionError  # `count` has no end
