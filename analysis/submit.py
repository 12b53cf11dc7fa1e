"""Spark jobs, each started by `spark-submit` in a process of its own."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from analysis.classes import kept_classes
from analysis.java import spark_environment
from inventory.errors import InputError, MillraceError, RunError, UnfitError
from inventory.parent_death import end_with

LOCAL = "local[*]"
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of Java for jobs that are done before its optimising compiler would pay."""

_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|spark://.+|yarn|k8s://.+")
_LOGGING = Path(__file__).parent / "jobs" / "log4j2.properties"
_PATIENCE_S = 5.0
_DEATH_S = 1.0
"""How long what was killed may take to be gone, which in some containers nobody sees to."""
_KEPT_LINES = 400


@dataclass(frozen=True)
class Job:
    """What to start.

    Attributes:
        name: of what it makes, for messages.
        script: the program.
        arguments: of the program.
        progress: what its lines of progress begin with; those with `millrace: ` are errors.
        log: where its output is kept when it fails for an unknown reason.
        java: options of Java.
        settings: of Spark.
        long: whether it takes so long that it may also make the archive of Spark's classes, for later jobs.
    """

    name: str
    script: Path
    arguments: Sequence[str]
    progress: str
    log: Path
    java: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    long: bool = False


def check_master(master: str | None) -> None:
    """Refuse what is no Spark master; None stands for `LOCAL`.

    Raises:
        InputError: it is none.
    """
    if master is not None and not _MASTER.fullmatch(master):
        raise InputError(f"--master: got {master!r}, expected local[N], spark://HOST:PORT, yarn or k8s://URL")


def submit(job: Job, master: str | None, tell: Callable[[str], None]) -> None:
    """Run the job to its end.

    Args:
        job: what to start.
        master: Spark master; default is this host's cores.
        tell: gets its lines of progress.

    Raises:
        InputError: the job says so, or the master is none that Spark knows.
        UnfitError: Spark or Java is missing, Spark does not start, or the job says so.
        RunError: the job failed; its output is in `job.log`.
    """
    check_master(master)
    environment = spark_environment()
    if master is None or master.startswith("local"):
        # Otherwise Spark asks which address this host's name has, which a laptop on the road cannot answer.
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    kept: list[str] = []
    # From there on the job itself says how far it is.
    tell(f"{job.progress}starting Java")
    with kept_classes(environment, make=job.long) as classes:
        command = _command(job, Path(environment["SPARK_HOME"]), master or LOCAL, classes.options)
        if classes.made:
            tell(f"{job.progress}Spark's classes are kept for later jobs: this one takes some seconds more at its end")
        with _started(command, environment) as (process, lines):
            for line in lines:
                if line.startswith(job.progress):
                    tell(line.rstrip())
                elif len(kept) < _KEPT_LINES:
                    kept.append(line)
        if process.returncode != 0:
            raise _failure(job, process.returncode, kept)
    with suppress(OSError):
        job.log.unlink()


def _command(job: Job, spark: Path, master: str, classes: Sequence[str]) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join([logging, *classes, *job.java]),
        **job.settings,
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return [str(spark / "bin" / "spark-submit"), "--master", master, *conf, str(job.script), *job.arguments]


@contextmanager
def _started(command: list[str], environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """The job's process and its output; when the block is left early, the process and all that it started are ended.

    It has a session of its own, so that Ctrl-C reaches us alone and we decide.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=end_with(os.getpid()),
    )
    try:
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
    """What to say of a job that ended with `status`: its own message, or where its output is."""
    kinds: dict[int, type[MillraceError]] = {kind.exit_status: kind for kind in (InputError, UnfitError)}
    said, of_spark = (
        [line.removeprefix(prefix).strip() for line in lines if line.startswith(prefix)]
        for prefix in ("millrace: ", "spark: ERROR ")
    )
    if said and status in kinds:
        return kinds[status]("; Spark's last words: ".join([said[-1], *of_spark[-1:]]))
    failed = f"{job.name}'s Spark job failed with status {status}"
    try:
        job.log.write_text("".join(lines), encoding="utf-8")
    except OSError as fault:
        return RunError(f"{failed}, and {job.log} cannot be written: {fault}")
    return RunError(f"{failed}; what it said is in {job.log}")
