"""Figures: distinguishable colours, text as text, and the same bytes every time."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from analysis.figures.data import Band, NodeUsage, RunLine, WorkloadData, quantity
from analysis.figures.lines import latency_figure, log_ticks
from analysis.figures.palette import GROUND, INK, MUTED, PALETTE, SERIES, look
from analysis.figures.report_figures import KINDS, draw_all
from analysis.figures.theme import SETTINGS, write_pdf
from analysis.statistics.intervals import spread
from analysis.statistics.metrics import METRICS

SVG = "{http://www.w3.org/2000/svg}"

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
COLOUR_VISION = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """Return CIE L*a*b* of linear RGB."""
    matrix = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    xyz = np.array(matrix) @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    """Return the WCAG 2 contrast ratio."""
    light = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) + 0.05 for c in (one, other)), reverse=True)
    return light[0] / light[1]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", COLOUR_VISION)
def test_colours_of_schedulers_are_distinguishable(theme: str, sight: str) -> None:
    colours = [lab(np.array(COLOUR_VISION[sight]) @ linear(getattr(colour, theme))) for colour in SERIES]
    # 2.3 is the just noticeable difference; thin lines need far more.
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(colours, 2)) > 18


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_colours_contrast_with_the_background(theme: str) -> None:
    ground = getattr(GROUND, theme)
    assert all(contrast(getattr(colour, theme), ground) >= 3 for colour in SERIES)
    assert all(contrast(getattr(colour, theme), ground) >= 4.5 for colour in (INK, MUTED))


def test_schedulers_differ_without_colours() -> None:
    looks = [look(at) for at in range(40)]
    assert len({(each.dash, each.mark) for each in looks}) == 40
    assert len({each.dash for each in looks[:7]}) == 7
    assert not any(each.mark for each in looks[:7])
    assert len({each.marker for each in looks[:7]}) == 7
    # Seven successive schedulers have different dashes and markers, six have different colours.
    assert len({(each.colour, each.marker) for each in looks}) == 40
    assert looks[0].colour == looks[len(SERIES)].colour


def test_lines_of_a_figure_and_their_legend_differ_by_dash_or_mark() -> None:
    data = workload(1, schedulers=[f"s-{at}" for at in range(9)])
    with mpl.rc_context(SETTINGS):
        (axes,) = latency_figure(data).axes
        of_lines = [(line.get_linestyle(), line._unscaled_dash_pattern, line.get_marker()) for line in axes.lines]
        legend = axes.get_legend()
        assert legend is not None
        handles = [(h._unscaled_dash_pattern, h.get_marker()) for h in legend.get_lines()]
        assert [(dash, marker) for _, dash, marker in of_lines] == handles
        assert len(set(map(str, handles))) == 9


@pytest.mark.parametrize(("low", "high"), [(11, 260), (0.8, 52_000), (30, 33), (30.2, 30.4), (1e-3, 2e-3), (5, 50)])
def test_a_logarithmic_axis_has_round_labels_that_can_be_read(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert 3 <= len(ticks) <= 8
    assert all(low <= tick <= high for tick in ticks)
    assert ticks == sorted(set(ticks))
    assert len({quantity(tick) for tick in ticks}) == len(ticks)
    # The distance of labels is at least a fifteenth of the axis.
    places = [math.log(tick / low) / math.log(high / low) for tick in ticks]
    assert min(b - a for a, b in itertools.pairwise(places)) > 1 / 15


@pytest.mark.parametrize("times", [1.0, 0.001, 400.0])
def test_the_latency_figure_labels_its_axis_for_any_latencies(times: float) -> None:
    data = workload(1)
    lines = [replace(line, points=[(q, ms * times) for q, ms in line.points]) for line in data.latency]
    with mpl.rc_context(SETTINGS):
        figure = latency_figure(replace(data, latency=lines))
        figure.canvas.draw()
        labels = [label.get_text() for label in figure.axes[0].get_yticklabels(which="both")]
    assert len([label for label in labels if label]) >= 3
    assert len(labels) == len(set(labels))


def workload(repetitions: int, schedulers: Sequence[str] = ("even", "top-storm"), nodes: int = 5) -> WorkloadData:
    """A workload's data with simple, different values for every run."""
    rounds = range(1, repetitions + 1)
    values = {
        m.name: {s: [10.0 * (at + 1) + k + 100 * col for k in rounds] for at, s in enumerate(schedulers)}
        for col, m in enumerate(METRICS)
    }
    lines = [
        RunLine(s, k, [(float(x), 1000.0 + 10 * at + k + x) for x in range(-2, 20)])
        for at, s in enumerate(schedulers)
        for k in rounds
    ]
    shares = [q / 1000 for q in range(10, 1000, 10)] + [0.999, 0.9999, 1.0]
    tails = [RunLine(line.scheduler, line.repetition, [(q, 1.0 + 9 * q**8) for q in shares]) for line in lines]
    names = [f"n{k}" for k in range(1, nodes + 1)]
    slots = {(node, 0): [f"split[{at}]", f"count[{at}]"] for at, node in enumerate(names[: max(2, nodes // 2)])}
    return WorkloadData(
        label="wordcount",
        looks={s: look(at) for at, s in enumerate(schedulers)},
        repetitions=dict.fromkeys(schedulers, repetitions),
        warmup_s=2.0,
        throughput=lines,
        latency=tails,
        latency_over_time=lines,
        samples={(line.scheduler, line.repetition): 20_000 for line in lines},
        values=values,
        spreads={m: {s: spread(v, m, s) for s, v in each.items()} for m, each in values.items()},
        placements=[
            NodeUsage(s, list(rounds), {n: 2 for n, _ in slots}, {n: 1 for n, _ in slots}, slots) for s in schedulers
        ],
        nodes=names,
    )


def texts_of(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own file
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def test_the_same_data_gives_the_same_bytes_and_no_date() -> None:
    first, second = dict(draw_all(workload(3), "w")), dict(draw_all(workload(3), "w"))
    assert first == second
    assert list(first) == list(KINDS)
    assert not any(re.search(r"20\d\d-\d\d-\d\d|dc:date|matplotlib", svg, re.IGNORECASE) for svg in first.values())


@pytest.mark.parametrize("repetitions", [1, 3, 12])
def test_every_figure_has_its_names_and_title_as_text(repetitions: int) -> None:
    for name, svg in draw_all(workload(repetitions), "w"):
        texts = texts_of(svg)
        assert {"even", "top-storm"} <= set(texts), name
        titles = {
            "Throughput over time",
            "Latency over time",
            "End-to-end latency",
            "Traffic by hop",
            "Nodes used",
            "CPU in use",
        }
        assert len(titles & set(texts)) == 1, name
        assert "<title>wordcount: " in svg
        assert not re.search(r"nan|inf\b", svg, re.IGNORECASE), name


def test_intervals_are_written_from_ten_repetitions_on_only() -> None:
    few, many = (dict(draw_all(workload(n), "w"))["traffic"] for n in (9, 10))
    assert not any("[" in text for text in texts_of(few))
    assert sum("[" in text for text in texts_of(many)) == 6


def test_every_colour_is_one_of_the_palette_and_has_its_class() -> None:
    known = {colour.light: colour.name for colour in PALETTE}
    for name, svg in draw_all(workload(3), "w"):
        for element in ElementTree.fromstring(svg).iter():  # noqa: S314 - our own file
            classes = (element.get("class") or "").split()
            for key, letter in (("fill", "f"), ("stroke", "k")):
                value = element.get(key)
                if value not in (None, "none"):
                    assert f"{letter}-{known[value]}" in classes, (name, element.tag, value)
            assert element.get("style") is None


def test_ids_are_used_and_differ_between_the_figures_of_a_page() -> None:
    earlier_ids: set[str] = set()
    for prefix in ("a", "b"):
        for _, svg in draw_all(workload(3), prefix):
            ids = re.findall(r'\bid="([^"]+)"', svg)
            assert len(ids) == len(set(ids))
            assert all(f"#{one}" in svg for one in ids)
            assert not earlier_ids & set(ids)
            earlier_ids |= set(ids)


def test_a_scheduler_keeps_its_colour_in_all_figures() -> None:
    data = workload(3, schedulers=["top-storm"])
    recoloured = WorkloadData(**{**data.__dict__, "looks": {"top-storm": look(4)}})
    for name, svg in draw_all(recoloured, "w"):
        assert re.search(r"\b[fk]-s4\b", svg), name
        assert not re.search(r"\b[fk]-s[01235]\b", svg), name


@pytest.mark.parametrize("repetitions", [3, 12])
def test_suspect_runs_are_hollow_and_recoveries_are_dotted_lines(repetitions: int) -> None:
    plain = workload(repetitions)

    def with_suspects(lines: Sequence[RunLine]) -> list[RunLine]:
        return [RunLine(line.scheduler, line.repetition, line.points, at < 2) for at, line in enumerate(lines)]

    suspect_data: dict[str, Any] = {
        "throughput": with_suspects(plain.throughput),
        "latency": with_suspects(plain.latency),
        "latency_over_time": with_suspects(plain.latency_over_time),
        "suspect": {m: {"even": [True, True, *[False] * (repetitions - 2)]} for m in plain.values},
        "recoveries": {"even": [3.0, 7.5]},
    }
    before = dict(draw_all(plain, "w"))
    after = dict(draw_all(WorkloadData(**{**plain.__dict__, **suspect_data}), "w"))
    hollow = {name: len(re.findall(r'<use[^>]*fill-opacity="0"', svg)) for name, svg in after.items()}
    # Throughput and latency: each line, or their one median. Others: a dot per group and run.
    of_lines = dict.fromkeys(("throughput", "latency-over-time", "latency"), 2 if repetitions == 3 else 1)
    assert hollow == {**of_lines, "traffic": 6, "nodes": 0, "cpu": 6}
    assert not any(re.search(r'<use[^>]*fill-opacity="0"', svg) for svg in before.values())
    dotted = [len(re.findall("stroke-dasharray", svg["throughput"])) for svg in (before, after)]
    assert dotted[1] - dotted[0] == 2


def test_changes_are_numbered_bands_with_the_schedulers_dashes() -> None:
    data = workload(2, schedulers=["still", "even", "top-storm"])
    bands = {
        "even": [Band("1", 2.0, 4.5), Band("2", 9.0, 30.0)],
        "top-storm": [Band("t1", 3.0, 3.5), Band("t2", 40, 41)],
    }
    before = dict(draw_all(data, "w"))
    after = dict(draw_all(replace(data, bands=bands), "w"))
    for name in ("throughput", "latency-over-time"):
        # A band after the end is not drawn; one across the end stops there.
        assert Counter(texts_of(after[name])) - Counter(texts_of(before[name])) == Counter([" 1", "2 ", " t1"])
        dashes = [Counter(re.findall(r'stroke-dasharray="([^"]+)"', svg[name])) for svg in (before, after)]
        assert sorted((dashes[1] - dashes[0]).values()) == [2, 4]
    assert {name for name in before if before[name] != after[name]} == {"throughput", "latency-over-time"}


@pytest.mark.long
def test_texts_of_many_schedulers_and_nodes_fit_into_the_figure() -> None:
    data = workload(3, schedulers=[f"scheduler-{at}" for at in range(19)], nodes=60)
    for _, svg in draw_all(data, "w"):
        root = ElementTree.fromstring(svg)  # noqa: S314 - our own file
        left, top, width, height = map(float, root.get("viewBox", "").split())
        assert (left, top) == (0, 0)
        for text in root.iter(f"{SVG}text"):
            assert 0 <= float(text.get("y", "0")) <= height
            assert 0 <= float(text.get("x", "0")) <= width


def test_missing_values_are_marked_as_not_measured_and_not_drawn_as_0() -> None:
    data = workload(3)
    spreads = {**data.spreads, "host_cores": dict.fromkeys(data.looks)}
    values = {**data.values, "host_cores": dict.fromkeys(data.looks, ())}
    svg = dict(draw_all(WorkloadData(**{**data.__dict__, "spreads": spreads, "values": values}), "w"))["cpu"]
    assert texts_of(svg).count("not measured") == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (0.00512, "0.00512"),
        (12.345, "12.3"),
        (999.4, "999"),
        (1234.4, "1 234"),
        (9995.0, "9 995"),
        (12345, "12.3 k"),
        (999_400, "999 k"),
        (999_600, "1 M"),
        (1_000_000, "1 M"),
        (2.5e9, "2.5 G"),
    ],
)
def test_numbers_are_written_in_short_form(value: float | None, shown: str) -> None:
    assert quantity(value) == shown


def test_figures_are_self_contained_files(tmp_path: Path) -> None:
    for name, svg in draw_all(workload(3), "w"):
        path = tmp_path / f"{name}.svg"
        path.write_text(svg)
        root = ElementTree.parse(path).getroot()  # noqa: S314 - our own file
        # Programs without CSS variables, or without CSS, show the same: literal colours on a background.
        assert root.find(f"{SVG}style") is None
        assert not re.search(r"var\(|@media|style=", svg)
        assert [element.tag for element in root][:2] == [f"{SVG}title", f"{SVG}rect"]
        assert root[1].get("fill") == GROUND.light
        assert root.get("width") is None
        assert math.isclose(float(root.get("viewBox", "").split()[2]), 331.2)


def test_figures_without_values_are_marked() -> None:
    data = workload(1)
    empty = {
        "throughput": [RunLine(s, 1, []) for s in data.looks],
        "latency": [RunLine(s, 1, []) for s in data.looks],
        "latency_over_time": [RunLine(s, 1, [(0.0, 0.0)]) for s in data.looks],
        "samples": {(s, 1): 0 for s in data.looks},
        "values": {m: dict.fromkeys(data.looks, ()) for m in data.values},
        "spreads": {m: dict.fromkeys(data.looks) for m in data.spreads},
        "placements": [],
        "nodes": [],
    }
    for name, svg in draw_all(WorkloadData(**{**data.__dict__, **empty}), "w"):
        texts = texts_of(svg)
        assert any(text in ("not measured", "not recorded") for text in texts), name
        assert not re.search(r"nan|inf\b", svg, re.IGNORECASE), name


def test_pdfs_embed_truetype_fonts_and_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    figures: dict[str, Any] = {}
    assert [name for name, _ in draw_all(workload(3), "w", figures.__setitem__)] == list(figures)
    with mpl.rc_context(SETTINGS):
        for number in (1, 2):
            write_pdf(figures["nodes"], tmp_path / f"{number}.pdf")
    first, second = ((tmp_path / f"{number}.pdf").read_bytes() for number in (1, 2))
    assert first == second
    assert first.startswith(b"%PDF-")
    assert b"/FontFile2" in first
    assert not re.search(rb"/Type3|/CreationDate|/Producer", first)
