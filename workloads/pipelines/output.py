"""Tables as folders of part files, and what goes with them."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame

from inventory.documents import dump_json
from inventory.errors import InputError
from workloads.pipelines.progress import report

Format = Literal["parquet", "csv"]
SUMMARY = "summary.json"

_OPTIONS: Mapping[str, Mapping[str, str]] = {"parquet": {}, "csv": {"header": "true", "nullValue": "NULL"}}


def check_output(output: Path, source: Path) -> None:
    """Refuse a place that holds something else than an earlier output, or the input.

    Raises:
        InputError: it does.
    """
    if source.resolve().is_relative_to(output.resolve()):
        raise InputError(f"--output: {output} holds the input {source}, and would be replaced")
    if output.exists() and not (output / SUMMARY).is_file() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"--output: {output} is there already, and is no output of a pipeline")


@dataclass(frozen=True)
class Tables:
    """Tables that are being written.

    Attributes:
        folder: where; each table gets a folder of its own there.
        kind: format.
        order: name of a table -> columns by which it is in order: part files by name, and the rows in them.
    """

    folder: Path
    kind: Format
    order: Mapping[str, Sequence[str]]

    def write(self, tables: Mapping[str, DataFrame], piece: int = 0) -> None:
        """Write rows of tables; those of a later `piece` come behind those of one before."""
        for name, rows in tables.items():
            report(f"table {name}")
            aside, place = self.folder / f".{name}", self.folder / name
            rows.orderBy(*self.order[name]).write.options(**_OPTIONS[self.kind]).format(self.kind).save(str(aside))
            place.mkdir(exist_ok=True)
            for at, part in enumerate(sorted(aside.glob("part-*"))):
                part.rename(place / f"part-{piece:05d}-{at:05d}.{self.kind}")
            # With it go checksums and marks of Spark's own.
            shutil.rmtree(aside)


def write_document(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON document."""
    path.write_text(dump_json(content), encoding="utf-8")
