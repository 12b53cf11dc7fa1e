"""Validation of workers' reports; an invalid report ends the run.

Names and paths in reports come from nodes and become names and paths on the controller. Values that the controller can
predict must match exactly; all others must be single file names in the expected folder.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from agents.protocol import Place, RunSpec, Stored
from agents.protocol.node_folders import NodeFolder, component
from inventory.errors import RunError, nearest

HERE = NodeFolder(Path())
"""A node's folder relative to itself, as paths in reports are."""

_MOST_SHOWN = 200


def check_worker(place: Place, workers: Collection[Place]) -> None:
    """Check that a report comes from a worker of the run.

    Raises:
        RunError: it does not.
    """
    if place not in workers:
        raise RunError(f"report for slot {place.slot}, which has no worker in this run")


def check_stored(
    node: str, report: Stored, spec: RunSpec, places: Mapping[str, Place], tables: Collection[str]
) -> None:
    """Check that a snapshot is of an executor on this node and in the expected file.

    Args:
        node: sender of the report.
        report: the report.
        spec: specification of the run.
        places: executor -> its worker.
        tables: tables of the topology's answer.

    Raises:
        RunError: it is not.
    """
    place = places.get(report.executor)
    if place is None or place.node != node:
        raise RunError(f"report of state for {_quoted(report.executor)}, which does not run there")
    file = str(HERE.run(spec.run).snapshot(report.barrier, report.executor))
    if report.file != file:
        raise RunError(f"report of state for {report.executor} in {_quoted(report.file)}; expected: {file!r}")
    check_answers(report.answers, spec.run, tables)


def check_answers(answers: Mapping[str, tuple[str, ...]], run: str, tables: Collection[str]) -> None:
    """Check that answers are for tables of the topology and in files of the answer folder.

    Raises:
        RunError: they are not.
    """
    folder = str(HERE.run(run).answers)
    for table, files in answers.items():
        if table not in tables:
            hint = nearest(table[:_MOST_SHOWN], tables)
            raise RunError(f"answer for {_quoted(table)}, which is no table of the topology{hint}")
        for file in files:
            within, _, name = file.rpartition("/")
            if within != folder:
                raise RunError(f"answer in {_quoted(file)}; expected: a file in {folder!r}")
            component(name)


def check_positions(positions: Iterable[str], spouts: Collection[str]) -> None:
    """Check that positions are for spout executors.

    Raises:
        RunError: they are not.
    """
    for name in positions:
        if name not in spouts:
            hint = nearest(name[:_MOST_SHOWN], spouts)
            raise RunError(f"position for {_quoted(name)}, which is no spout executor of the topology{hint}")


def _quoted(name: str) -> str:
    return repr(name[:_MOST_SHOWN])
