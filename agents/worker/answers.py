"""Writing rows of a sink's answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from inventory.errors import RunError
from workloads.operators import Row

_ARROW = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bytes": pa.binary(), "bool": pa.bool_()}


def schema_of(fields: Mapping[str, str]) -> pa.Schema:
    """The columns of an answer with these fields: name -> type, as `Bolt.answer_schema` has them."""
    return pa.schema([pa.field(name, _ARROW[kind]) for name, kind in fields.items()])


def write_rows(path: Path, executor: str, fields: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Write rows as an Arrow file, which is there whole or not at all.

    Raises:
        RunError: the rows do not follow the answer's schema.
        OSError: the file cannot be written.
    """
    try:
        schema = schema_of(fields)
        columns = list(zip(*rows, strict=True)) or [() for _ in schema]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    except BaseException as fault:
        # Rows and schema are an operator's: anything may come of them.
        what = fault if isinstance(fault, ValueError) else f"{type(fault).__name__}: {fault}"
        raise RunError(f"{executor}: the answer does not follow {fields}: {what}") from fault
    beside = path.with_name(f".{path.name}.new")
    with pa.OSFile(str(beside), "wb") as target, pa.ipc.new_file(target, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    beside.replace(path)
