"""Style of the figures, conversion of Matplotlib's SVG for light and dark pages, and PDF for papers.

Figures are drawn in the light palette. The files have these colours on their own background as plain attributes,
because many SVG viewers do not support CSS variables and show such colours as black. Every colour of the palette also
has a class. Only the page has rules for it, so that colours there follow the reader's theme. Text remains text. The
same figure always gives the same bytes.
"""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from analysis.figures.palette import GRID, GROUND, INK, MUTED, PALETTE, Look
from inventory.foreign import printable

WIDTH_IN = 4.6
"""About the width of a phone, so that text is readable there and in a row of three on a laptop."""

_LEGEND_ROW_IN = 0.19

_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_BY_VALUE = {colour.light: colour for colour in PALETTE}

SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names are no formulas
    "font.size": 10,
    "figure.titlesize": 11.5,
    "figure.titleweight": "bold",
    "axes.labelsize": 10,
    "axes.edgecolor": MUTED.light,
    "axes.labelcolor": MUTED.light,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "text.color": INK.light,
    "xtick.color": MUTED.light,
    "ytick.color": MUTED.light,
    "xtick.labelcolor": MUTED.light,
    "ytick.labelcolor": MUTED.light,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "grid.color": GRID.light,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "legend.columnspacing": 1.4,
    "legend.borderaxespad": 0.3,
    "legend.borderpad": 0.0,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
}


def new_figure(title: str, height_in: float) -> tuple[Figure, Axes]:
    """Return an empty figure of the common width with a title at its left edge and one pair of axes."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    figure.suptitle(title, x=0.012, ha="left")
    return figure, figure.subplots()


def with_legend(
    title: str, looks: Mapping[str, Look], height_in: float, rows: int = 1, dots: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with `rows` axes below one another, and a legend of the schedulers above them.

    Args:
        title: title of the figure.
        looks: scheduler -> how it is drawn.
        height_in: height in inches without the legend.
        rows: number of axes.
        dots: whether runs are dots instead of lines.
    """
    columns = max(1, min(len(looks), 54 // (max(map(len, looks)) + (4 if dots else 7))))
    lines = -(-len(looks) // columns)
    figure = Figure(figsize=(WIDTH_IN, height_in + lines * _LEGEND_ROW_IN), layout="constrained")
    figure.suptitle(title, x=0.012, ha="left")
    axes = list(figure.subplots(rows, 1, squeeze=False)[:, 0])
    handles = [
        Line2D([], [], color=look.colour.light, linestyle="", marker=look.marker, label=name)
        if dots
        else Line2D([], [], linewidth=1.6, label=name, **look.line(1))
        for name, look in looks.items()
    ]
    length = 0.8 if dots else 3.2
    axes[0].legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, handlelength=length)
    return figure, axes


def hatch(axes: Axes) -> None:
    """Hatch the background of modelled values."""
    ground = Rectangle((0, 0), 1, 1, transform=axes.transAxes, facecolor="none", edgecolor=GRID.light, hatch="///")
    ground.set(linewidth=0, zorder=-1)
    axes.add_patch(ground)


def say_empty(axes: Axes, words: str) -> None:
    """Write the reason into the middle of axes without data."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=MUTED.light)


def render_svg(figure: Figure, name: str, description: str) -> str:
    """Return the figure as a standalone SVG document.

    Args:
        figure: drawn with the colours of the light palette.
        name: unique in the report; part of every id.
        description: alternative text.
    """
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    # Trusted input: drawn by this function.
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314
    _clean(root)
    _class_colours(root)
    for size in ("width", "height"):
        del root.attrib[size]
    root.set("class", "millrace")
    root.set("role", "img")
    root.set("stroke-linejoin", "round")
    root.set("font-family", _FONTS)
    title = ElementTree.Element(f"{{{_SVG}}}title")
    title.text = printable(description)
    root.insert(0, title)
    root.insert(1, _ground())
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def write_pdf(figure: Figure, path: Path) -> None:
    """Write a figure as PDF, the same bytes for the same figure; publishers refuse fonts of Type 3."""
    with mpl.rc_context({"pdf.fonttype": 42}):
        figure.savefig(path, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})


def colour_rules() -> str:
    """Return CSS rules that give the classes their colours."""
    return "".join(f".f-{c.name}{{fill:var(--{c.name})}}.k-{c.name}{{stroke:var(--{c.name})}}" for c in PALETTE)


def variables(theme: str) -> str:
    """Return the palette's CSS variables in `light` or `dark`."""
    return "".join(f"--{colour.name}:{getattr(colour, theme)};" for colour in PALETTE)


def _ground() -> ElementTree.Element:
    size = {"width": "100%", "height": "100%"}
    return ElementTree.Element(f"{{{_SVG}}}rect", size | {"fill": GROUND.light, "class": f"f-{GROUND.name}"})


def _clean(root: ElementTree.Element) -> None:
    """Remove Matplotlib's metadata, its style sheet and unused ids."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    used = set(re.findall(r"#([\w-]+)", " ".join(v for e in root.iter() for v in e.attrib.values())))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        if element.tag == f"{{{_SVG}}}path":
            element.set("d", _short_path(element.get("d", "")))


def _short_path(path: str) -> str:
    """Return the path on one line, with coordinates to a hundredth of a point."""
    path = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number.group()):.2f}".rstrip("0").rstrip("."), path)
    return " ".join(path.split())


def _class_colours(root: ElementTree.Element) -> None:
    """Turn `style` attributes into plain attributes, and add classes for the palette's colours."""
    for element in root.iter():
        style = element.attrib.pop("style", "")
        classes = [element.get("class")] if element.get("class") else []
        for declaration in filter(None, (part.strip() for part in style.split(";"))):
            key, _, value = (part.strip() for part in declaration.partition(":"))
            if key == "font-family":
                continue
            element.set(key, value)
            if key in ("fill", "stroke") and value in _BY_VALUE:
                classes.append(f"{'f' if key == 'fill' else 'k'}-{_BY_VALUE[value].name}")
        if element.tag == f"{{{_SVG}}}text" and "fill" not in element.attrib:
            element.set("fill", INK.light)
            classes.append(f"f-{INK.name}")
        if classes:
            element.set("class", " ".join(str(name) for name in classes))
