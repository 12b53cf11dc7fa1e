"""Writing a sink's part of the final answer."""

from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from agents.worker.executor import BoltExecutor
from inventory.errors import RunError

_ARROW = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bytes": pa.binary(), "bool": pa.bool_()}


def write_answer(sink: BoltExecutor, folder: Path) -> tuple[str, Path] | None:
    """Write `<table>-<component>-<index>.arrow` below `folder`.

    Returns (table, path), or None for a bolt without an answer.

    Raises:
        RunError: the rows do not follow the bolt's `answer_schema`.
    """
    bolt = sink.bolt
    if not bolt.answer_table:
        return None
    schema = pa.schema([pa.field(name, _ARROW[kind]) for name, kind in bolt.answer_schema.items()])
    rows = list(bolt.answer())
    try:
        columns = list(zip(*rows, strict=True)) or [() for _ in schema]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    except (ValueError, pa.ArrowException, OverflowError) as fault:
        raise RunError(
            f"{sink.executor.name}: the answer does not follow {dict(bolt.answer_schema)}: {fault}"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{bolt.answer_table}-{sink.executor.component}-{sink.executor.index}.arrow"
    with pa.OSFile(str(path), "wb") as target, pa.ipc.new_file(target, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bolt.answer_table, path
