"""Files with parts of the answer: as sinks write them on a node, and as the controller reads them.

Columns are written as an Arrow file. Rows are written as MessagePack, an array of the fields (name -> type) and the
rows, so that workers whose operators process rows need not load Arrow, which takes 30 MB and a fifth of a second.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from inventory.atomic_files import replacing_path
from inventory.errors import RunError
from workloads.columns import Columns
from workloads.operators import Row

if TYPE_CHECKING:
    import pyarrow as pa

Fields = Mapping[str, str]
"""Columns of a table of the answer: name -> type, as in `Bolt.answer_schema`."""

_TYPES: Mapping[str, Any] = {
    "int": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "float": float,
    "str": str,
    "bytes": bytes,
    "bool": bool,
}
_MAGIC = b"ARROW1"

_decoder = msgspec.msgpack.Decoder(tuple[dict[str, str], list[tuple[Any, ...]]])


def answer_columns(fields: Fields) -> "pa.Schema":
    """Return the Arrow columns of an answer with these fields."""
    import pyarrow as pa

    arrow = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bytes": pa.binary(), "bool": pa.bool_()}
    return pa.schema([pa.field(name, arrow[kind]) for name, kind in fields.items()])


def write_answer_rows(path: Path, executor: str, fields: Fields, rows: Sequence[Row]) -> None:
    """Write rows, which may be `Columns`, atomically.

    Raises:
        RunError: the rows do not follow the answer's schema.
        OSError: the file cannot be written.
    """
    packed = None if isinstance(rows, Columns) else _packed(fields, rows)
    if packed is None:
        _write_arrow(path, executor, fields, rows)
        return
    with replacing_path(path) as partial:
        partial.write_bytes(packed)


def _packed(fields: Fields, rows: Sequence[Row]) -> bytes | None:
    """Return the file's contents; None for values that only Arrow can convert or name the fault of."""
    try:
        row = tuple.__class_getitem__(tuple([_TYPES[kind] | None for kind in fields.values()]))
        msgspec.msgpack.decode(msgspec.msgpack.encode(rows), type=list.__class_getitem__(row))
        return msgspec.msgpack.encode((fields, rows))
    except BaseException:  # noqa: BLE001 - rows and fields come from an operator and may raise anything; again below
        return None


def _write_arrow(path: Path, executor: str, fields: Fields, rows: Sequence[Row]) -> None:
    import pyarrow as pa
    import pyarrow.ipc

    try:
        schema = answer_columns(fields)
        if isinstance(rows, Columns):
            arrays = rows.plain().columns
        else:
            columns = list(zip(*rows, strict=True)) or [() for _ in schema]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    except BaseException as fault:
        # Rows and schema come from an operator and may raise anything.
        what = fault if isinstance(fault, ValueError) else f"{type(fault).__name__}: {fault}"
        raise RunError(f"{executor}: the answer does not follow {fields}: {what}") from fault
    with (
        replacing_path(path) as partial,
        pa.OSFile(str(partial), "wb") as target,
        pa.ipc.new_file(target, schema) as writer,
    ):
        writer.write_batch(pa.record_batch(arrays, schema=schema))


def read_answer_rows(path: Path, fields: Fields) -> "pa.Table":
    """Read a part of the answer.

    Raises:
        RunError: it is missing, damaged, or has other columns.
    """
    import pyarrow as pa
    import pyarrow.ipc

    schema = answer_columns(fields)
    try:
        with path.open("rb") as source:
            is_arrow = source.read(len(_MAGIC)) == _MAGIC
        if is_arrow:
            with pa.OSFile(str(path), "rb") as source:
                table = pyarrow.ipc.open_file(source).read_all()
            # Arrow does not check files on reading: a column that points outside its buffer crashes the process.
            table.validate(full=True)
            names = table.schema.names if not table.schema.equals(schema) else None
        else:
            written, rows = _decoder.decode(path.read_bytes())
            names = list(written) if list(written.items()) != list(fields.items()) else None
            columns = list(zip(*rows, strict=True)) or [() for _ in schema]
            if names is None:
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                table = pa.Table.from_arrays(arrays, schema=schema)
    except FileNotFoundError:
        raise RunError(f"a part of the answer is missing: {path}") from None
    except (pa.ArrowException, msgspec.MsgspecError, OSError, OverflowError, TypeError, ValueError) as fault:
        raise RunError(f"a part of the answer cannot be read: {path}: {fault}") from None
    if names is not None:
        raise RunError(f"a part of the answer has columns {names}; expected: {schema.names}: {path}")
    return table
