"""Files of the report's figures, and their names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.figures.report_figures import Keep, forget_figures
from analysis.figures.theme import write_pdf
from analysis.page.report_page import Figure

LONGEST_SLUG = 200
"""Maximum length of a workload's part in the name of a figure's file."""


@dataclass(frozen=True)
class FigureFiles:
    """Files of figures: SVG, and if `pdf` is true PDF beside it."""

    folder: Path
    pdf: bool

    def write(self, name: str, caption: str, svg: str) -> Figure:
        """Write a figure as SVG."""
        file = f"{name}.svg"
        (self.folder / file).write_text(svg, encoding="utf-8")
        return Figure(file, caption, svg)

    def keep(self, slug: str, behind: str = "") -> Keep:
        """Return a function that writes figures as PDF beside their SVG, or nothing if that is not requested."""
        return (
            (lambda name, figure: write_pdf(figure, self.folder / f"{slug}-{name}{behind}.pdf"))
            if self.pdf
            else forget_figures
        )


def slugs(labels: Sequence[str]) -> dict[str, str]:
    """Return label -> unique text for file names and anchors."""
    slug_of: dict[str, str] = {}
    for label in labels:
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", label).strip("-")[:LONGEST_SLUG] or "workload"
        while slug in slug_of.values():
            slug += "-2"
        slug_of[label] = slug
    return slug_of
