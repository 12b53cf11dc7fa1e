"""Collection of a run's traces, answers, logs and profiles from its nodes into the run's folder."""

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
from agents.protocol import Profile
from agents.protocol.node_folders import component, regular_files
from agents.worker.process.state_store import schema_of
from controller.coordinator.report_validation import HERE
from controller.nodes.transport import Transport
from inventory.errors import MillraceError, RunError
from workloads.operators import Row

Nodes = Mapping[str, Transport]

Fields = Mapping[str, str]
"""Columns of a table of the answer: name -> type."""

LOGS = "*.log"


async def collect_traces(nodes: Nodes, run: str, ours: Path, target: Path) -> dict[str, int]:
    """Write `target/<table>.parquet` from the trace files of all nodes and our own; return rows per table.

    Raises:
        RunError: a trace file is not of this version.
        OSError: they cannot be written.
    """
    below = str(HERE.run(run).traces)
    fetched = await asyncio.gather(*(transport.fetch(below, trace.FILES) for transport in nodes.values()))
    return await asyncio.to_thread(trace.collect, [*fetched, ours], target)


def collect_answer(
    parts: Iterable[tuple[str, Path]], target: Path, tables: Mapping[str, Fields]
) -> dict[str, Sequence[Row]]:
    """Write the sinks' answer as `target/<table>/part-<k>.parquet` and return its rows by table.

    Args:
        parts: (table, file) of each part.
        target: folder of the tables.
        tables: all tables; one without parts has no rows.

    Raises:
        RunError: a part is missing, is no Arrow file, or has other columns than its table.
        OSError: they cannot be written.
    """
    rows: dict[str, list[Row]] = {table: [] for table in tables}
    written: dict[str, int] = {}
    for table, path in parts:
        found = _read_part(path, schema_of(tables[table]))
        number = written.get(table, 0)
        written[table] = number + 1
        folder = target / table
        folder.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(found, folder / f"part-{number:05d}.parquet")
        rows[table].extend(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return dict(rows)


async def collect_logs(nodes: Nodes, run: str, target: Path) -> None:
    """Copy the logs of agents and workers to `target/<node>/`; empty ones are left out.

    Nodes that cannot be reached are skipped: the logs of the others may show why.

    Raises:
        OSError: they cannot be written.
    """

    async def collect(node: str, transport: Transport) -> None:
        for below in (HERE.path, HERE.log.parent, HERE.run(run).log(0).parent):
            folder = await transport.fetch(str(below), LOGS)
            for log in regular_files(folder, LOGS):
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
    """Copy the sampled stacks of all workers to `target`; return their entries for `run.json`.

    Raises:
        RunError: a node cannot be reached or gives an invalid file name.
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
                name = component(Path(profile.file).name)
                folder = await transport.fetch(str(HERE.run(run).profiles), glob.escape(name))
                if folder / name in regular_files(folder, glob.escape(name)):
                    shutil.copyfile(folder / name, target / name)
                    found = {"file": f"{target.name}/{name}", "samples": profile.samples}
                else:
                    found = {"reason": f"{node} has no file {profile.file}"}
            else:
                found = {"reason": profile.reason}
            listed.append(none | {"slot": profile.slot} | found)
    return listed


def _read_part(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        with pa.OSFile(str(path), "rb") as source:
            found = pyarrow.ipc.open_file(source).read_all()
        # Arrow does not check files on reading: a column that points outside its buffer crashes the process.
        found.validate(full=True)
    except FileNotFoundError:
        raise RunError(f"a part of the answer is missing: {path}") from None
    except (pa.ArrowException, OSError) as fault:
        raise RunError(f"a part of the answer cannot be read: {path}: {fault}") from None
    if not found.schema.equals(schema):
        raise RunError(f"a part of the answer has columns {found.schema.names}; expected: {schema.names}: {path}")
    return found
