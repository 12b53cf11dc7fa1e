"""Figures of energy: sources, modelled and unknown values, and events."""

import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from analysis.figures.data import DotPlots, MeterData, Moment, Panel, Point, PowerData, RunLine
from analysis.figures.dot_plots import front
from analysis.figures.palette import PALETTE, look
from analysis.figures.report_figures import draw_energy, draw_power
from analysis.figures.theme import SETTINGS, render_svg
from analysis.statistics.intervals import spread

SVG = "{http://www.w3.org/2000/svg}"
METRICS = ("joules_per_tuple", "net_joules_per_tuple", "idle_percent")
RAPL = "rapl (dram/package-0, package-0)"


def meter(repetitions: int = 3, modelled: bool = False, schedulers: Sequence[str] = ("even", "top-storm")) -> MeterData:
    """Runs of schedulers, each a little cheaper than the one before; the first run of each is suspect."""
    values = {
        m: {s: [0.01 / (at + 1) + k / 1e4 for k in range(repetitions)] for at, s in enumerate(schedulers)}
        for m in METRICS
    }
    runs = [
        Point(s, 1000.0 + k, values["joules_per_tuple"][s][k], k == 0) for s in schedulers for k in range(repetitions)
    ]
    medians = [
        Point(s, 1000.0 + at, 0.01 / (at + 1), False, (990.0, 1010.0), (0.009 / (at + 1), 0.011 / (at + 1)), at > 0)
        for at, s in enumerate(schedulers)
    ]
    return MeterData(
        source="model (node), modelled" if modelled else RAPL,
        modelled=modelled,
        dot_plots=DotPlots(
            looks={s: look(at) for at, s in enumerate(schedulers)},
            values=values,
            spreads={m: {s: spread(v, m, s) for s, v in each.items()} for m, each in values.items()},
            suspect={m: {s: [k == 0 for k in range(repetitions)] for s in schedulers} for m in METRICS},
        ),
        runs=runs,
        middles=medians if repetitions >= 10 else [],
    )


def panel(domain: str, *gaps: int, modelled: bool = False, repetitions: int = 2) -> Panel:
    """Twenty seconds of two schedulers; power is not known at seconds of `gaps`."""
    points = [(second + 0.5, math.nan if second in gaps else 40.0 + second) for second in range(-2, 18)]
    lines = [RunLine(s, k, points) for s in ("even", "top-storm") for k in range(1, repetitions + 1)]
    return Panel("n1", domain, "model" if modelled else "rapl", modelled, domain != "psys", lines)


def power_data(*panels: Panel, moments: Sequence[Moment] = ()) -> PowerData:
    return PowerData({"even": look(0), "top-storm": look(1)}, 2.0, panels, moments)


def texts_of(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own file
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def every_figure() -> dict[str, str]:
    """Few measured and many modelled runs, power with and without gaps."""
    kinds = ((2, False), (12, True))
    figures = {f"{n}-{name}": svg for n, m in kinds for name, svg in draw_energy(meter(n, m), "w", "w")}
    events = [Moment("even", 3.0, "n1", "throttled"), Moment("top-storm", 5.0, "", "recovery")]
    figures["power"] = draw_power(power_data(panel("package-0", 4), panel("psys"), moments=events), "w", "w")
    many = panel("package-0", 4, repetitions=11), panel("node", modelled=True)
    figures["power-many"] = draw_power(power_data(*many), "w", "w")
    return figures


def test_figures_of_energy_use_the_palette_have_finite_numbers_and_are_deterministic() -> None:
    known = {colour.light: colour.name for colour in PALETTE}
    figures = every_figure()
    for name, svg in figures.items():
        assert not re.search(r"nan|inf\b", svg, re.IGNORECASE), name
        assert re.search(r"\b(rapl|model)\b", " ".join(texts_of(svg))), name
        for element in ElementTree.fromstring(svg).iter():  # noqa: S314 - our own file
            classes = (element.get("class") or "").split()
            for key, letter in (("fill", "f"), ("stroke", "k")):
                value = element.get(key)
                # Hatching is a pattern; its own elements have colours of the palette.
                if value not in (None, "none") and not value.startswith("url(#"):
                    assert f"{letter}-{known[value]}" in classes, (name, element.tag, value)
    assert every_figure() == figures


def test_only_modelled_energy_is_hatched() -> None:
    for modelled in (False, True):
        for name, svg in draw_energy(meter(3, modelled), "w", "w"):
            assert ("<pattern" in svg) is modelled, name
    assert "<pattern" not in draw_power(power_data(panel("package-0")), "w", "w")
    assert "<pattern" in draw_power(power_data(panel("package-0"), panel("node", modelled=True)), "w", "w")


def test_a_front_is_drawn_from_ten_repetitions_on_only() -> None:
    with mpl.rc_context(SETTINGS):
        few, many = (render_svg(front(meter(n)), "w", "w") for n in (9, 10))
    assert "front" not in texts_of(few)
    assert "front" in texts_of(many)


@pytest.mark.parametrize("repetitions", [1, 12])
def test_unknown_power_breaks_the_line_and_is_not_drawn_at_0(repetitions: int) -> None:
    def strokes(*gaps: int) -> set[int]:
        svg = draw_power(power_data(panel("package-0", *gaps, repetitions=repetitions)), "w", "w")
        lines = re.findall(r'<path d="([^"]+)"[^>]*k-s0', svg)
        return {line.count("M") for line in lines if line.count("L") > 4 or line.count("M") > 1}

    assert strokes() == {1}
    assert 2 in strokes(8)


def test_events_are_marked_in_the_panel_of_their_node_with_their_name() -> None:
    events = [Moment("even", 3.0, "n1", "throttled"), Moment("even", 4.0, "n2", "meter silent")]
    texts = texts_of(draw_power(power_data(panel("package-0"), moments=events), "w", "w"))
    assert "throttled" in texts
    assert "meter silent" not in texts


def test_domains_without_a_panel_are_counted_and_those_outside_the_total_named() -> None:
    text = " ".join(texts_of(draw_power(power_data(*(panel(f"package-{k}") for k in range(15))), "w", "w")))
    assert "12 of 15 domains; the others are in tables/power.csv" in text
    assert "n1 · psys · rapl, not in the total" in texts_of(draw_power(power_data(panel("psys")), "w", "w"))


def test_unknown_power_is_marked_as_not_measured() -> None:
    assert "not measured" in texts_of(draw_power(power_data(panel("package-0", *range(-2, 18))), "w", "w"))


def test_texts_of_many_schedulers_fit_into_the_figure() -> None:
    data = meter(3, schedulers=[f"scheduler-{at}" for at in range(19)])
    for name, svg in draw_energy(data, "w", "w"):
        root = ElementTree.fromstring(svg)  # noqa: S314 - our own file
        _, _, width, height = map(float, root.get("viewBox", "").split())
        for text in root.iter(f"{SVG}text"):
            assert 0 <= float(text.get("y", "0")) <= height, name
            assert 0 <= float(text.get("x", "0")) <= width, name
