"""A workload taken through a stretch of its input: what its process finds by itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from campaign.admin.checks.stage import ANSWER, INPUT, PURE, RESTORE, SNAPSHOT, BrokenError, Stage
from campaign.admin.checks.trial import Speaker
from inventory.errors import InputError
from inventory.plugins import raised_at
from workloads.key_groups import codec_bytes
from workloads.registry import load_workload
from workloads.workload import Answer, PreparedInput, Workload

SAME = "the same rows from two instances, and in another process"


def try_workload(name: str, folder: Path, speaker: Speaker) -> None:
    """Take the workload `name` through a trial; its input is prepared in `folder`, if it is not there yet."""
    workload = load_workload(name, {})
    try:
        with _owing(workload, speaker, INPUT, "prepare"):
            inputs = workload.prepare(folder)
    except BrokenError:
        return
    records = ", ".join(f"{entry.name}: {entry.records:,} records" for entry in inputs)
    speaker.note(INPUT, records or "it needs no prepared input")
    try:
        _try(workload, inputs, speaker)
    except BrokenError:
        return


def _try(workload: Workload, inputs: Sequence[PreparedInput], speaker: Speaker) -> None:
    stage = Stage(workload, inputs, speaker)
    stage.play()
    answer = stage.answer()
    stage.close()
    positions = list(stage.positions.values())
    with _owing(workload, speaker, ANSWER, "reference"):
        reference = workload.reference(positions, inputs)
        again = workload.reference(positions, inputs)
    if _sorted(reference) != _sorted(again):
        speaker.fault(PURE, "the reference is another one when it is asked for a second time")
    with _owing(workload, speaker, ANSWER, "compare"):
        verdict = workload.compare(answer, reference)
    if not verdict.passed:
        speaker.fault(ANSWER, f"it is not that of the reference: {verdict.message}")
    rows, restores = sum(positions), sum(triplet.restores for triplet in stage.triplets.values())
    speaker.note(ANSWER, f"{rows:,} records emitted, {verdict.checked:,} rows of the answer compared")
    speaker.note(SNAPSHOT, f"{restores} snapshots, all of them bytes")
    speaker.note(RESTORE, f"{restores} operators restored, which went on as if nothing had happened")
    beyond = _beyond_free(stage)
    for column, total in stage.emissions.columns().items():
        if column[0] not in beyond:
            speaker.answer(_named(stage, *column), str(total))
    free = ", ".join(_named(stage, *column) for column in stage.emissions.free)
    left_out = f"; left out with what follows from it, because two instances differ there: {free}" if free else ""
    speaker.note(PURE, SAME + left_out)


@contextmanager
def _owing(workload: Workload, speaker: Speaker, check: str, what: str) -> Iterator[None]:
    """Around what is done once in a run; what it raises is said, and ends the trial."""
    try:
        with speaker.call(what, at_leisure=True):
            yield
    except InputError as fault:
        speaker.fault(check, f"{what}: {fault}")
    except Exception as fault:  # noqa: BLE001 - somebody else's code
        speaker.fault(check, f"{what} fails: {type(fault).__name__}: {fault} ({raised_at(fault, type(workload))})")
    else:
        return
    raise BrokenError(what)


def _beyond_free(stage: Stage) -> set[str]:
    """Components that get something from a free column: what they emit is another thing in every process."""
    sources = {component for component, _, _ in stage.emissions.free}
    found: set[str] = set()
    for name in stage.topology.order:
        if any(entry.source in sources | found for entry in stage.topology.component[name].inputs):
            found.add(name)
    return found


def _named(stage: Stage, component: str, stream: str, column: int) -> str:
    """A column in words."""
    declared = (stage.topology.component[component].outputs or {}).get(stream)
    name = list(declared)[column] if declared else f"column {column}"
    return f"{name} in {stream!r} of {component}"


def _sorted(answer: Answer) -> dict[str, list[bytes]]:
    return {table: sorted(codec_bytes(tuple(row)) for row in rows) for table, rows in answer.items()}
