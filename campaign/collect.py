"""Gathering what a run left on its nodes: traces, answers and logs, into the run's folder."""

import asyncio
import glob
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from agents import trace
from agents.folders import NodeFolder
from agents.protocol import Profile
from campaign.transport import Transport
from inventory.errors import MillraceError, RunError
from workloads.operators import Row

Nodes = Mapping[str, Transport]

LOGS = "*.log"

HERE = NodeFolder(Path())
"""A node's folder as seen from itself: its paths are those that a transport takes."""


async def collect_traces(nodes: Nodes, run: str, ours: Path, target: Path) -> dict[str, int]:
    """Write `target/<table>.parquet` from the trace files of all nodes and our own; return rows per table.

    Raises:
        RunError: a trace file is not of this version.
        OSError: they cannot be written.
    """
    below = str(HERE.run(run).traces)
    fetched = await asyncio.gather(*(transport.fetch(below, "*") for transport in nodes.values()))
    return await asyncio.to_thread(trace.collect, [*fetched, ours], target)


def collect_answer(parts: Iterable[tuple[str, Path]], target: Path) -> dict[str, Sequence[Row]]:
    """Write the sinks' answer as `target/<table>/part-<k>.parquet` and return its rows by table.

    Args:
        parts: (table, file) of each part.
        target: folder of the tables.

    Raises:
        RunError: a part is missing or is no Arrow file.
        OSError: they cannot be written.
    """
    rows: dict[str, list[Row]] = {}
    written: dict[str, int] = {}
    for table, path in parts:
        found = _read_part(path)
        number = written.get(table, 0)
        written[table] = number + 1
        folder = target / table
        folder.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(found, folder / f"part-{number:05d}.parquet")
        rows.setdefault(table, []).extend(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return dict(rows)


async def collect_logs(nodes: Nodes, run: str, target: Path) -> None:
    """Copy the logs of agents and workers to `target/<node>/`; empty ones are left out.

    Nodes that cannot be reached are passed over: what is kept of the others may tell why.

    Raises:
        OSError: they cannot be written.
    """

    async def collect(node: str, transport: Transport) -> None:
        for below in (HERE.path, HERE.log.parent, HERE.run(run).log(0).parent):
            folder = await transport.fetch(str(below), LOGS)
            for log in sorted(folder.glob(LOGS)) if folder.is_dir() else ():
                if log.stat().st_size:
                    (target / node).mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(log, target / node / log.name)

    outcomes = await asyncio.gather(*(collect(*each) for each in nodes.items()), return_exceptions=True)
    for fault in outcomes:
        if fault is not None and not isinstance(fault, MillraceError):
            raise fault


async def collect_profiles(
    nodes: Nodes, run: str, profiles: Mapping[str, Sequence[Profile]], target: Path
) -> list[dict[str, Any]]:
    """Copy the sampled stacks of all workers to `target`; return what `run.json` says of them.

    Raises:
        OSError: they cannot be written.
    """
    target.mkdir(exist_ok=True)
    listed: list[dict[str, Any]] = []
    for node, transport in nodes.items():
        none = {"node": node, "slot": None, "file": None, "samples": None, "reason": None}
        if node not in profiles:
            listed.append(none | {"reason": f"the agent of {node} did not answer in time"})
        for profile in profiles.get(node, ()):
            if profile.file:
                name = Path(profile.file).name
                file = await transport.fetch(str(HERE.run(run).profiles), glob.escape(name)) / name
                shutil.copyfile(file, target / file.name)
                found = {"file": f"{target.name}/{file.name}", "samples": profile.samples}
            else:
                found = {"reason": profile.reason}
            listed.append(none | {"slot": profile.slot} | found)
    return listed


def _read_part(path: Path) -> pa.Table:
    try:
        with pa.OSFile(str(path), "rb") as source:
            return pyarrow.ipc.open_file(source).read_all()
    except FileNotFoundError:
        raise RunError(f"a part of the answer is missing: {path}") from None
    except pa.ArrowInvalid as fault:
        raise RunError(f"a part of the answer cannot be read: {path}: {fault}") from None
