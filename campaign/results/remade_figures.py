"""Figures of a report, drawn again from its tables."""

from pathlib import Path

from analysis.page.build import build
from analysis.page.render import REPORT
from analysis.records.campaign import load_campaign
from analysis.statistics.metrics import Rows
from analysis.tables.summary import SPARK_COLUMNS
from campaign.results.open_results import Results
from inventory.atomic_files import replacing_folder
from inventory.errors import InputError


def remade_figures(folder: Path, out: Path) -> list[str]:
    """Draw the figures of the report in `folder` again into `out`; return the names of those that differ.

    Nothing but the tables and the records of runs is used: neither traces nor Spark.

    Args:
        folder: contains `campaign.json` and `report/tables`.
        out: where the whole report is made; an earlier one is replaced.

    Raises:
        InputError: there is no campaign, a table is missing or damaged, or `out` holds something else than a report.
        UnfitError: the report cannot be written.
    """
    results = Results(folder)
    if out.resolve() == (folder / "report").resolve():
        raise InputError(f"{out}: is the report itself; give another folder")
    tables = {name: _rows(results, name) for name in SPARK_COLUMNS}
    campaign = load_campaign(folder)
    ranked = results.table("ranking").to_arrow().to_pylist() if "ranking" in results.tables else []
    baseline = next((row["baseline"] for row in ranked), None) or None
    with replacing_folder(out, REPORT) as made:
        build(campaign, tables, made, campaign.baseline(baseline), lambda _line: None)
    before, after = (
        {path.name: path.read_bytes() for path in (each / "figures").glob("*.svg")} for each in (folder / "report", out)
    )
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _rows(results: Results, name: str) -> Rows:
    """Return the rows of a table of the Spark job.

    Raises:
        InputError: another version made the report: the table or a column is missing.
    """
    table = results.table(name).to_arrow() if name in results.tables else None
    present = table.column_names if table is not None else ()
    if table is None or (absent := [column for column in SPARK_COLUMNS[name] if column not in present]):
        what = f"the column {absent[0]!r} of the table {name!r}" if table is not None else f"the table {name!r}"
        again = f"build it again with: millrace report {results.folder}"
        raise InputError(f"{results.folder}: the report of another version, without {what}; {again}")
    # Missing text is empty here, which figures do not distinguish.
    rows: Rows = table.to_pylist()
    return rows
