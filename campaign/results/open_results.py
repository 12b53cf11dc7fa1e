"""Results of a campaign for Python: records of runs, traces and tables as pandas or Arrow.

pandas and pyarrow are imported when they are needed, because `from millrace import Results` also works where they are
not installed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from inventory.errors import InputError, nearest

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from analysis.records.campaign import Campaign
    from analysis.records.file_types import CampaignRecord, RunRecord
    from campaign.results.run_summary import RunSummary

TEXT_COLUMNS = frozenset(
    (
        *("run", "workload", "scheduler", "baseline", "metric", "unit", "status", "reason", "verification", "message"),
        *("not_given", "incomplete", "outcome", "clocks", "text", "unknown", "part", "source", "domains", "domain"),
        *("flags", "why_not_attributed", "node", "role", "hop", "component", "scope", "kind", "interface", "consumer"),
        *("executor", "subject", "detail", "dominated_by", "window", "other"),
    )
)
"""Columns of the report's tables that are text, also if a label looks like a number or all values are empty."""

ESCAPED_FORMULA = r"^'([=+@-])"
"""Text that the report has escaped for spreadsheets."""


def campaign_folder(folder: Path) -> Path:
    """Return the folder of a campaign, or of the newest one for `latest`; later, `latest` may lead to another campaign.

    Raises:
        InputError: there is no such directory, or no campaign yet.
    """
    from campaign.results.live_file import find_campaign

    chosen = find_campaign(folder)
    if not chosen.is_dir():
        raise InputError(f"{chosen}: no such directory")
    return chosen.resolve()


class ResultTable:
    """Table of results that is read when it is converted, each time anew."""

    def __init__(self, name: str, read: Callable[[], "pa.Table"]) -> None:
        self.name = name
        self._read = read

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def to_arrow(self) -> "pa.Table":
        """Return the table as a `pyarrow.Table`; unknown values are null.

        Raises:
            InputError: a file is missing or damaged.
        """
        return self._read()

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a DataFrame.

        Whole numbers and booleans have pandas' nullable types: an unknown one is `<NA>`, and nanoseconds stay exact.

        Raises:
            InputError: a file is missing or damaged.
        """
        import pandas as pd
        import pyarrow as pa

        kinds = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.bool_(): pd.BooleanDtype()}
        frame: pd.DataFrame = self.to_arrow().to_pandas(types_mapper=kinds.get)
        return frame


class Results:
    """Results of a campaign, as they are on disk when they are opened.

    >>> results = Results("results/demo/latest")  # doctest: +SKIP
    >>> results.traces("throughput", "executor", "processed").to_pandas()  # doctest: +SKIP

    Attributes:
        folder: the folder that contains `campaign.json`, without symbolic links.
        record: content of `campaign.json`.
        trace_tables: names of the trace tables.
        tables: names of the tables: those of the report, or those that follow from the records of runs without one.
    """

    def __init__(self, folder: str | Path = "latest") -> None:
        """Open the results.

        Args:
            folder: the folder that contains `campaign.json`, or `latest` for the newest campaign in `results/`.

        Raises:
            InputError: there is no such folder, it contains no campaign, a later version wrote it, or a file is
                invalid.
        """
        from agents.collected_traces import TABLES
        from analysis.records.campaign import load_campaign

        self._campaign = load_campaign(campaign_folder(Path(folder)))
        self.folder = self._campaign.folder
        self._schemas = TABLES
        self.record: CampaignRecord = self._campaign.file
        self.trace_tables: tuple[str, ...] = tuple(TABLES)
        self._tables = {path.stem: path for path in sorted((self.folder / "report" / "tables").glob("*.csv"))}
        self.tables = tuple(self._tables or sorted(_compared_columns()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def runs(self) -> "Mapping[str, RunRecord]":
        """Return name -> `run.json` of all runs that have ended, in order, failed and skipped ones included."""
        return {run.id: run.file for run in self._campaign.runs if run.file is not None}

    def summary(self) -> "Sequence[RunSummary]":
        """Return status and main metrics of every run, incomplete ones included."""
        from campaign.results.run_summary import summary_of

        return [summary_of(run) for run in self._campaign.runs]

    def traces(self, table: str, *columns: str, runs: Sequence[str] | None = None) -> ResultTable:
        """Return a trace table of several runs; its first columns are `run`, `node`, `worker` and `t_ns`.

        Columns that results of earlier versions lack are null.

        Args:
            table: one of `trace_tables`, which docs/reference/traces.md describes.
            columns: further columns; all of them by default.
            runs: names of runs; by default those that the report compares: verified, with complete traces.

        Raises:
            InputError: there is no such table, column or run, or the run has no traces.
        """
        if table not in self._schemas:
            raise InputError(f"{self.folder}: no trace table {table!r}{nearest(table, self._schemas)}")
        names = self._schemas[table].names
        for column in columns:
            if column not in names:
                raise InputError(f"the trace table {table!r} has no column {column!r}{nearest(column, names)}")
        chosen = [name for name in names if not columns or name in (*names[:4], *columns)]
        paths = [self._folder_of(name) / "traces" / f"{table}.parquet" for name in self._named(runs)]
        return ResultTable(table, lambda: _read_traces(paths, self._schemas[table], chosen))

    def table(self, name: str) -> ResultTable:
        """Return a table of the report (docs/reference/report-tables.md); those of runs begin with `run`.

        Without a report, the table is computed from the records of runs: columns that need traces are null.

        Raises:
            InputError: there is no such table, or it needs a report and there is none yet.
        """
        if name not in self.tables:
            if name in self._schemas:
                hint = f"; traces({name!r}) is the trace table"
            elif not self._tables:
                hint = f"{nearest(name, self.tables)}; others need a report: millrace report {self.folder}"
            else:
                hint = nearest(name, self.tables)
            whose = "the report has" if self._tables else "the records of runs give"
            raise InputError(f"{self.folder}: {whose} no table {name!r}{hint}")
        if name in self._tables:
            return ResultTable(name, partial(_read_csv, self._tables[name]))
        return ResultTable(name, partial(_compared_table, self._campaign, name))

    def _named(self, runs: Sequence[str] | None) -> Sequence[str]:
        return [run.id for run in self._campaign.counted] if runs is None else runs

    def _folder_of(self, name: str) -> Path:
        by_name = {run.id: run for run in self._campaign.runs}
        if name not in by_name:
            raise InputError(f"{self.folder}: no run {name!r}{nearest(name, by_name)}")
        if not by_name[name].sizes:
            raise InputError(f"{self.folder}: {name} has no traces ({by_name[name].status}: {by_name[name].reason})")
        return by_name[name].folder


def _read_traces(paths: Sequence[Path], schema: "pa.Schema", columns: Sequence[str]) -> "pa.Table":
    """Return these columns of all files, one after the other; columns that a file lacks are null."""
    import pyarrow as pa
    import pyarrow.parquet

    wanted = pa.schema([schema.field(name) for name in columns])
    parts = [wanted.empty_table()]
    for path in paths:
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                present = [name for name in columns if name in file.schema_arrow.names]
                part = file.read(columns=present)
        except (OSError, pa.ArrowException) as fault:
            raise InputError(f"{path}: cannot be read: {fault}") from None
        for name in set(columns) - set(present):
            part = part.append_column(schema.field(name), pa.nulls(len(part), schema.field(name).type))
        parts.append(part.select(columns).cast(wanted))
    return pa.concat_tables(parts)


def _compared_columns() -> "Mapping[str, Sequence[str]]":
    from analysis.page.compared_tables import COMPARED_COLUMNS

    return COMPARED_COLUMNS


def _compared_table(campaign: "Campaign", name: str) -> "pa.Table":
    """Return a table as a report would have it, from the records of runs."""
    from analysis.page.compared_tables import recorded_tables
    from analysis.page.print_tables import csv_text

    return _parsed(csv_text(_compared_columns()[name], recorded_tables(campaign)[name]).encode())


def _read_csv(path: Path) -> "pa.Table":
    """Return a table of the report."""
    import pyarrow as pa

    try:
        return _parsed(path.read_bytes())
    except (OSError, UnicodeDecodeError, pa.ArrowException) as fault:
        raise InputError(f"{path}: cannot be read: {fault}") from None


def _parsed(content: bytes) -> "pa.Table":
    """Return the table that is written as CSV: empty numbers are null, empty text is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv

    header = content.partition(b"\n")[0].decode().split(",")
    text = TEXT_COLUMNS | ({"suspect"} if header[0] == "run" else set())
    # Types are inferred from the first block, so it has all rows. Reasons and messages may have several lines.
    table = pyarrow.csv.read_csv(
        pa.BufferReader(content),
        read_options=pyarrow.csv.ReadOptions(block_size=len(content) + 1),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string())),
    )
    for at, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(at, field.name, pc.replace_substring_regex(table[at], ESCAPED_FORMULA, r"\1"))
        elif pa.types.is_null(field.type):
            table = table.set_column(at, field.name, table[at].cast(pa.float64()))
    return table
