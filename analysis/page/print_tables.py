"""Tables as text: CSV of every table, and LaTeX with booktabs and Markdown of comparisons, as papers print them."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from analysis.figures.data import quantity
from analysis.records.descriptions import change
from analysis.statistics.intervals import without_noise
from analysis.statistics.metrics import Row, Rows
from analysis.statistics.ranking import HEADINGS, shown_in_rows
from inventory.foreign import escaped

Cells = Sequence[str]

THIN_SPACE = "\u202f"


def write_printed(folder: Path, tables: Mapping[str, Rows]) -> None:
    """Write every table of `PRINTED` that has rows as `<table>.tex` and `<table>.md` into a folder."""
    for name in PRINTED:
        if tables[name]:
            for form in FORMS:
                (folder / f"{name}.{form}").write_text(printed(name, tables[name], form), encoding="utf-8")


def printed(name: str, rows: Rows, form: str) -> str:
    """Return a table of `PRINTED` in one of the forms `tex` and `md`; empty without rows."""
    return FORMS[form](*PRINTED[name](rows)) if rows else ""


def markdown(headings: Cells, lines: Sequence[Cells]) -> str:
    """Return a table in Markdown; columns of numbers are aligned to the right."""
    rule = ["---:" if _is_number(lines, at) else "---" for at in range(len(headings))]
    head, *body = ([_mark_down(cell) for cell in line] for line in (headings, *lines))
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body))


def _mark_down(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#~&$])", r"\\\1", _visible(text))


def _visible(text: str) -> str:
    """Return a cell without line breaks and control characters; thin spaces are part of our own numbers."""
    return THIN_SPACE.join(map(escaped, text.split(THIN_SPACE)))


def latex(headings: Cells, lines: Sequence[Cells]) -> str:
    """Return a `tabular` with the rules of booktabs; columns of numbers are aligned to the right."""
    columns = "".join("r" if _is_number(lines, at) else "l" for at in range(len(headings)))
    head, *body = (f"{' & '.join(map(_tex, line))} \\\\\n" for line in (headings, *lines))
    return (
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\\midrule\n{''.join(body)}\\bottomrule\n\\end{{tabular}}\n"
    )


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # A bracket at the beginning of a row would be an argument of the line break before, and quotes would be joined.
    **{sign: f"{{{sign}}}" for sign in "[]`'"},
    "−": "$-$",
    "×": r"$\times$",
    "–": "--",
    THIN_SPACE: r"\,",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def _tex(text: str) -> str:
    # Two hyphens of a name would be joined to a dash.
    return re.sub(r"(-)(?=-)|.", lambda match: "-{}" if match[1] else _TEX.get(match[0], match[0]), _visible(text))


def _is_number(lines: Sequence[Cells], column: int) -> bool:
    return all(re.match(r"[−+×]?[\u202f\d]|$", line[column]) for line in lines)


def _minus(value: float | None) -> str:
    return "" if value is None else quantity(value).replace("-", "−").replace(" ", "\u202f")


def _with_ends(value: float | None, low: float | None, high: float | None) -> str:
    """Return `value [low, high]`, or what of it is known."""
    ends = "" if low is None or high is None else f"[{_minus(low)}, {_minus(high)}]"
    return " ".join(filter(None, (_minus(value), ends)))


def _ranking(rows: Rows) -> tuple[Cells, Sequence[Cells]]:
    """Return a line per workload and scheduler: medians, and in parentheses their change against the baseline."""
    shown = shown_in_rows(rows)
    by_scheduler: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        by_scheduler.setdefault((row["workload"], row["scheduler"]), {})[row["metric"]] = row

    def cell(row: Row | None) -> str:
        if row is None:
            return ""
        percent = row["change_percent"]
        return _minus(row["median"]) + ("" if percent is None else f" ({change(percent)})")

    lines = [
        [workload, scheduler, str(max(row["n"] for row in mine.values())), *(cell(mine.get(m.name)) for m in shown)]
        for (workload, scheduler), mine in by_scheduler.items()
    ]
    return ["workload", "scheduler", "n", *(f"{HEADINGS[m.name]}, {m.unit}" for m in shown)], lines


def _pairs(rows: Rows) -> tuple[Cells, Sequence[Cells]]:
    return ["workload", "schedulers", "metric", "n", "ratio", "adjusted p"], [
        [
            row["workload"],
            f"{row['scheduler']} / {row['other']}",
            HEADINGS[row["metric"]],
            str(row["n"]),
            _with_ends(row["ratio"], row["ratio_low"], row["ratio_high"]),
            _minus(row["adjusted_p"]),
        ]
        for row in rows
    ]


def _ratios(rows: Rows) -> tuple[Cells, Sequence[Cells]]:
    """Return a line per workload, combination of factors and scheduler: ratios with their intervals."""
    shown = shown_in_rows(rows)
    by_key: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        key = (row["workload"], row["factors"], f"{row['scheduler']} / {row['baseline']}")
        by_key.setdefault(key, {})[row["metric"]] = row

    def cell(row: Row | None) -> str:
        return "" if row is None else _with_ends(row["ratio"], row["ratio_low"], row["ratio_high"])

    lines = [
        [*key, str(max(row["n"] for row in mine.values())), *(cell(mine.get(m.name)) for m in shown)]
        for key, mine in by_key.items()
    ]
    return ["workload", "factors", "schedulers", "n", *(HEADINGS[m.name] for m in shown)], lines


def _long(value: str, low: str, high: str, else_low: str = "", else_high: str = "") -> "Arrangement":
    """Return the arrangement of a table with a row per metric; `else_low`, `else_high` are the ends without value."""

    def arrange(rows: Rows) -> tuple[Cells, Sequence[Cells]]:
        count = "n" if "n" in rows[0] else "pairs"
        lines = []
        for row in rows:
            ends = (row[low], row[high]) if row[value] is not None or not else_low else (row[else_low], row[else_high])
            name = f"{row['metric']}, {row['unit']}"
            lines.append([row["workload"], row["scheduler"], name, str(row[count]), _with_ends(row[value], *ends)])
        return ["workload", "scheduler", "metric", "n", value.replace("_", " ")], lines

    return arrange


Arrangement = Callable[[Rows], tuple[Cells, Sequence[Cells]]]

PRINTED: Mapping[str, Arrangement] = {
    "ranking": _ranking,
    "pairs": _pairs,
    "ratios": _ratios,
    "comparison": _long("median", "median_low", "median_high", "smallest", "largest"),
    "differences": _long("median_difference", "low", "high"),
}
"""Table -> how it is arranged for print."""

FORMS: Mapping[str, Callable[[Cells, Sequence[Cells]], str]] = {"tex": latex, "md": markdown}
"""Form for print -> how headings and lines are written in it."""


FORMULA = ("=", "+", "-", "@")
"""First characters of spreadsheet formulas."""


def write_csv(path: Path, columns: Sequence[str], rows: Rows) -> None:
    """Write a table into a file, as `csv_text` arranges it."""
    path.write_text(csv_text(columns, rows), encoding="utf-8")


def csv_text(columns: Sequence[str], rows: Rows) -> str:
    """Return a header and one line per row: missing values are empty, booleans `true` or `false`, formulas escaped."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row[c]) for c in columns])
    return text.getvalue()


def _cell(value: object) -> object:
    """Return a value as written to a CSV file.

    Text that a spreadsheet would evaluate as a formula is escaped with an apostrophe.
    """
    match value:
        case bool():
            return str(value).lower()
        case float():
            return without_noise(value)
        case str() if value.startswith(FORMULA):
            return f"'{value}"
    return value
