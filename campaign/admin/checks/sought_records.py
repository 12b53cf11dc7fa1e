"""Trial of `seek`: sources of another number emit the same records behind any first ones.

The first records of the input are read twice: from the beginning by the topology's sources, and behind a random number
of them by another number of sources, which seek.
"""

from collections.abc import Sequence
from random import Random

from campaign.admin.checks.operator_trial import RESTORE, OperatorTrial
from workloads.operators import Row, Seekable, Spout, own_records
from workloads.topology import DEFAULT_STREAM, Executor

RECORDS, MOST_SOURCES, TIMES = 200, 5, 4
"""Most records that are compared, most sources that seek, and how often they do."""


def check_seek(trial: OperatorTrial) -> None:
    """Let other numbers of sources seek, if the workload's sources can be scaled; report what differs.

    Raises:
        BrokenError: other records are emitted, or an operator fails.
    """
    first = trial.triplets[trial.spouts[0]].constant
    component = trial.spouts[0].component
    if not isinstance(first, Seekable) or any(spout.component != component for spout in trial.spouts):
        return
    spouts = _opened(trial, component, len(trial.spouts))
    with trial.calling(trial.spouts[0], "next_batch"):
        records = _records(spouts, 0, trial.random)
    times = [spout.times for spout in spouts if spout.times is not None]
    if times:
        with trial.calling(trial.spouts[0], "times"):
            stamps = [times[number % len(times)].due_ns(number // len(times)) for number in range(len(records))]
        if stamps != sorted(stamps):
            trial.fail(RESTORE, f"{component}: times of records fall, so that its sources must not have seek()")
    _close(trial, spouts)
    for _ in range(TIMES):
        begin, of = trial.random.randrange(len(records) + 1), 1 + trial.random.randrange(MOST_SOURCES)
        others = _opened(trial, component, of)
        with trial.calling(trial.spouts[0], "seek"):
            for index, spout in enumerate(others):
                spout.seek(own_records(begin, index, of))  # type: ignore[attr-defined]  # checked for the first one
            again = _records(others, begin, trial.random)
        lost = trial.emissions.lost(component, {DEFAULT_STREAM: records[begin:]}, {DEFAULT_STREAM: again})
        if lost:
            what = f"{of} sources that seek behind {begin} records give others than {len(spouts)} sources"
            trial.fail(RESTORE, f"{component}: {what}: {lost}")
        _close(trial, others)


def _opened(trial: OperatorTrial, component: str, of: int) -> list[Spout]:
    operators = [trial.opened(Executor(component, index), of) for index in range(of)]
    return [spout for spout in operators if isinstance(spout, Spout)]


def _close(trial: OperatorTrial, spouts: Sequence[Spout]) -> None:
    with trial.calling(trial.spouts[0], "close"):
        for spout in spouts:
            spout.close()


def _records(spouts: Sequence[Spout], begin: int, random: Random) -> list[Row]:
    """Return records from number `begin` on, in the input's order."""
    of = len(spouts)
    rows_by_seq: dict[int, Row] = {}
    for index, spout in enumerate(spouts):
        at, end = own_records(begin, index, of), own_records(RECORDS, index, of)
        while at < end and (rows := spout.next_batch(random.randint(1, end - at))):
            rows_by_seq |= {(at + number) * of + index: tuple(row) for number, row in enumerate(rows)}
            at += len(rows)
    return [row for _, row in sorted(rows_by_seq.items())]
