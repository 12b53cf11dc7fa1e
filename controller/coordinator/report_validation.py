"""What workers may claim in an epoch: a report that names what is not theirs is refused, and ends the run.

Names and paths in reports come from nodes, and become names and paths of the controller. So whatever can be known here
is compared with what is known, and the rest has to be one file name in the folder where it belongs.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from agents.protocol import Place, RunSpec, Stored
from agents.protocol.node_folders import NodeFolder, component
from inventory.errors import RunError, nearest

HERE = NodeFolder(Path())
"""A node's folder as seen from itself: its paths are those that reports have."""

_MOST_SHOWN = 200


def check_worker(place: Place, workers: Collection[Place]) -> None:
    """Find out whether a worker that speaks is one of the run's.

    Raises:
        RunError: it is not.
    """
    if place not in workers:
        raise RunError(f"it speaks for slot {place.slot}, which has no worker in this run")


def check_stored(node: str, said: Stored, spec: RunSpec, places: Mapping[str, Place], tables: Collection[str]) -> None:
    """Find out whether a snapshot is that of an executor of this node, and lies where such snapshots do.

    Args:
        node: which says so.
        said: the report.
        spec: of the run.
        places: executor -> its worker.
        tables: of the topology's answer.

    Raises:
        RunError: it is not.
    """
    place = places.get(said.executor)
    if place is None or place.node != node:
        raise RunError(f"it has stored the state of {_shown(said.executor)}, which does not run there")
    file = str(HERE.run(spec.run).snapshot(said.barrier, said.executor))
    if said.file != file:
        raise RunError(f"it has stored the state of {said.executor} in {_shown(said.file)}; expected: {file!r}")
    check_answers(said.answers, spec.run, tables)


def check_answers(answers: Mapping[str, tuple[str, ...]], run: str, tables: Collection[str]) -> None:
    """Find out whether answers are of the topology's tables, in files of the folder for answers.

    Raises:
        RunError: they are not.
    """
    folder = str(HERE.run(run).answers)
    for table, files in answers.items():
        if table not in tables:
            hint = nearest(table[:_MOST_SHOWN], tables)
            raise RunError(f"it has an answer for {_shown(table)}, which is no table of the topology{hint}")
        for file in files:
            within, _, name = file.rpartition("/")
            if within != folder:
                raise RunError(f"it has an answer in {_shown(file)}; expected: a file in {folder!r}")
            component(name)


def check_positions(positions: Iterable[str], spouts: Collection[str]) -> None:
    """Find out whether positions are those of spout executors.

    Raises:
        RunError: they are not.
    """
    for name in positions:
        if name not in spouts:
            hint = nearest(name[:_MOST_SHOWN], spouts)
            raise RunError(f"it has a position for {_shown(name)}, which is no spout executor of the topology{hint}")


def _shown(name: str) -> str:
    return repr(name[:_MOST_SHOWN])
