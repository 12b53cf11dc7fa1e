"""The page as one self-contained HTML file with styles, figures and text."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis.figures.data import quantity
from analysis.figures.theme import colour_rules, variables
from analysis.page.report_page import Page
from analysis.page.windows import WINDOW_METRICS, WindowGroup
from analysis.records.descriptions import change
from analysis.statistics.intervals import ConfidenceInterval, Spread
from analysis.statistics.metrics import Rows

_THIN = "\u202f"
_DASH = "–"


def render_page(page: Page, windows: Mapping[str, Sequence[WindowGroup]], searches: Rows, agreement: Rows) -> str:
    """Return the page as HTML.

    Args:
        page: the page.
        windows: label of a workload -> its windows.
        searches: rows of `searches.search_rows`.
        agreement: rows of `engine_view.agreement_rows`.
    """
    return render_template(
        "report.html.j2",
        page=page,
        windows_of=windows,
        window_metrics=WINDOW_METRICS,
        searches=searches,
        agreement=agreement,
    )


def render_template(name: str, **values: Any) -> str:
    """Return a page as HTML from a template; `values` are its variables."""
    environment = Environment(
        loader=PackageLoader("analysis.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "span": span,
        "spread": spread_text,
        "signed": signed,
        "change": lambda percent: _DASH if percent is None else change(percent),
        "difference": energy_difference_text,
        "size": size,
        "executors": executor_ranges,
        "groupby_order": group_neighbours,
        "ranges": ranges,
        # Figures are drawn by this program; the SVG writer escapes names in them.
        "inline": lambda svg: Markup(svg.strip()),  # noqa: S704
    }
    theme = {name: Markup(variables(name)) for name in ("light", "dark")}  # noqa: S704 - constants of this program
    template = environment.get_template(name)
    return template.render(**values, theme=theme, colours=Markup(colour_rules())) + "\n"  # noqa: S704


def number(value: Any, digits: int | None = 0) -> str:
    """Format a number with thin spaces between thousands; a dash for None.

    Args:
        value: the number.
        digits: digits after the decimal point; None: three significant digits.
    """
    if value is None:
        return _DASH
    if digits is None:
        return quantity(value)
    return f"{value:z,.{digits}f}".replace(",", _THIN)


def span(values: Sequence[float] | None, digits: int | None = 0) -> str:
    """Format the range of values, as a single number when both ends look the same."""
    if not values:
        return _DASH
    low, high = number(min(values), digits), number(max(values), digits)
    return low if low == high else f"{low}{_THIN}{_DASH}{_THIN}{high}"


def spread_text(spread: Spread | None, digits: int | None = 0) -> str:
    """Format the range, or with enough repetitions the median with its interval."""
    if spread is None:
        return _DASH
    if spread.median is None:
        return span([spread.low, spread.high], digits)
    inner = spread.median
    return f"{number(inner.estimate, digits)} [{span([inner.low, inner.high], digits)}]"


def signed(interval: ConfidenceInterval | None, digits: int | None = 0) -> str:
    """Format a difference with its interval, every number with its sign."""
    if interval is None:
        return _DASH

    def one(value: float) -> str:
        words = number(abs(value), digits)
        sign = "" if not words.strip("0.") else "−" if value < 0 else "+"
        return f"{sign}{words}"

    return f"{one(interval.estimate)} [{one(interval.low)}, {one(interval.high)}]"


def energy_difference_text(row: Mapping[str, Any] | None, digits: int | None = 0) -> str:
    """Format a row of the table `energy_differences`."""
    if row is None:
        return _DASH
    return signed(ConfidenceInterval(row["pairs"], row["median_difference"], row["low"], row["high"]), digits)


def size(count: int) -> str:
    """Format a number of bytes."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def executor_ranges(names: Sequence[str]) -> Mapping[str, str]:
    """Return `split[0] split[1] split[2] split[5]` as component -> ranges of indexes."""
    indexes: dict[str, list[int]] = {}
    for name in names:
        component, _, index = name.removesuffix("]").rpartition("[")
        indexes.setdefault(component, []).append(int(index))
    return {component: ranges(sorted(numbers)) for component, numbers in indexes.items()}


def group_neighbours(items: Sequence[Any], attribute: str) -> list[tuple[Any, list[Any]]]:
    """Group neighbours with the same value of an attribute."""
    return [(key, list(members)) for key, members in groupby(items, key=attrgetter(attribute))]


def ranges(indexes: Sequence[int]) -> str:
    """Format ascending whole numbers as ranges."""
    parts: list[list[int]] = []
    for index in indexes:
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ", ".join(str(a) if a == b else f"{a}{_DASH}{b}" for a, b in parts)
