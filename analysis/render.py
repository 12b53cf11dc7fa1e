"""A campaign's report, made by the Spark job in a process of its own."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from analysis.java import spark_environment
from analysis.lifetime import end_with
from analysis.results import Campaign, load_campaign
from inventory.errors import InputError, MillraceError, RunError, UnfitError

LOCAL = "local[*]"
JOB = Path(__file__).parent / "jobs" / "report.py"
LOG = "report.log"
PROGRESS = "report: "
"""What the job's lines of progress begin with."""

SMALL_ROWS = 1_000_000
"""So many rows are worked through before Java's optimising compiler would pay."""

_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|spark://.+|yarn|k8s://.+")

_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_PATIENCE_S = 5.0
_KEPT_LINES = 400


def render(
    folder: Path,
    master: str | None = None,
    baseline: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Make `folder/report` from the campaign in `folder`; return its page.

    Args:
        folder: holds `campaign.json`.
        master: Spark master; default is this host's cores.
        baseline: the scheduler that others are compared with; default is the agenda's.
        tell: gets lines of progress.

    Raises:
        InputError: the folder holds no campaign, a file in it is wrong, the baseline is no scheduler of it, or the
            master is none that Spark knows.
        UnfitError: Spark or Java is missing, Spark does not start, or the report cannot be written.
        RunError: the job failed; its output is in `report.log` of the folder.
    """
    campaign = load_campaign(folder)
    campaign.baseline(baseline)
    if master is not None and not _MASTER.fullmatch(master):
        raise InputError(f"--master: got {master!r}, expected local[N], spark://HOST:PORT, yarn or k8s://URL")
    environment = spark_environment()
    if master is None or master.startswith("local"):
        # Otherwise Spark asks which address this host's name has, which a laptop on the road cannot answer.
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    target = folder / "report"
    command = [
        *_submit(Path(environment["SPARK_HOME"]), master or LOCAL, campaign),
        *("--campaign", str(folder.resolve()), "--output", str(target.resolve())),
        *(("--baseline", baseline) if baseline is not None else ()),
    ]
    kept: list[str] = []
    with _started(command, environment) as (process, lines):
        for line in lines:
            if line.startswith(PROGRESS):
                tell(line.rstrip())
            elif len(kept) < _KEPT_LINES:
                kept.append(line)
    if process.returncode != 0:
        raise _failure(folder, process.returncode, kept)
    with suppress(OSError):
        (folder / LOG).unlink()
    return target / "index.html"


def _submit(spark: Path, master: str, campaign: Campaign) -> list[str]:
    options = [f"-Dlog4j2.configurationFile={(JOB.parent / 'log4j2.properties').as_uri()}"]
    if campaign.rows < SMALL_ROWS:
        options += _QUICK_START
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(options),
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return [str(spark / "bin" / "spark-submit"), "--master", master, *conf, str(JOB)]


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
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE_S)
        if process.stdout is not None:
            process.stdout.close()


def _failure(folder: Path, status: int, lines: list[str]) -> MillraceError:
    """What to say of a job that ended with `status`: its own message, or where its output is."""
    kinds: dict[int, type[MillraceError]] = {kind.exit_status: kind for kind in (InputError, UnfitError)}
    said, of_spark = (
        [line.removeprefix(prefix).strip() for line in lines if line.startswith(prefix)]
        for prefix in ("millrace: ", "spark: ERROR ")
    )
    if said and status in kinds:
        return kinds[status]("; Spark's last words: ".join([said[-1], *of_spark[-1:]]))
    where = folder / LOG
    try:
        where.write_text("".join(lines), encoding="utf-8")
    except OSError as fault:
        return RunError(f"the report's Spark job failed with status {status}, and {where} cannot be written: {fault}")
    return RunError(f"the report's Spark job failed with status {status}; what it said is in {where}")
