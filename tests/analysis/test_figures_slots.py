"""Figures of time slots: measured and predicted values, unknown ones, and only for runs with a schedule."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from synthetic_campaign import report_without_spark

from analysis.figures.data import Band, RunLine, SlotData
from analysis.figures.lines import slot_buffers, slot_stages
from analysis.figures.palette import PALETTE, look
from analysis.figures.report_figures import SLOT_KINDS, draw_slots
from analysis.figures.theme import SETTINGS
from analysis.page.build import slot_data, workload_data
from analysis.records.campaign import load_campaign
from analysis.tables.spark_tables import collected
from analysis.tables.summary import SPARK_COLUMNS
from analysis.tables.traces import Traces

SVG = "{http://www.w3.org/2000/svg}"
COLUMNS = ("transfer_ms", "processing_ms", "packing_ms", "busy_slot_ms", "overlapped_ms", "buffer_percent", "spread")
Maker = Callable[..., Path]


def slots(repetitions: int = 2, schedulers: Sequence[str] = ("pmod", "pipeline-linear")) -> SlotData:
    """Return data of twenty seconds, the third of which has no slots; the first run is suspect."""
    runs = [(s, k) for s in schedulers for k in range(repetitions)]

    def lines_of(column: int) -> list[RunLine]:
        def value(second: int) -> float:
            return math.nan if second == 2 else 1.0 + column + second % 3

        return [
            RunLine(s, k, [(second + 0.5, value(second) + k / 10) for second in range(20)], at == 0)
            for at, (s, k) in enumerate(runs)
        ]

    return SlotData(
        looks={s: look(at) for at, s in enumerate(schedulers)},
        over_time={column: lines_of(at) for at, column in enumerate(COLUMNS)},
        stalls=[RunLine(s, k, [(2.0, 1.5), (4.0, 4.5 + k)], at == 0) for at, (s, k) in enumerate(runs)],
        stalled_slots=dict.fromkeys(schedulers, 7),
    )


def without_columns(data: SlotData, scheduler: str, *columns: str) -> SlotData:
    """Return the data without these columns of a scheduler."""
    gaps = {
        column: [
            replace(line, points=[(x, math.nan) for x, _ in line.points]) if line.scheduler == scheduler else line
            for line in data.over_time[column]
        ]
        for column in columns
    }
    return replace(data, over_time={**data.over_time, **gaps})


def texts_of(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own file
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def svgs_of(data: SlotData) -> dict[str, str]:
    return dict(draw_slots(data, "w", "w"))


def styled(draw: Callable[[SlotData], Figure], data: SlotData) -> Figure:
    with mpl.rc_context(SETTINGS):
        return draw(data)


@pytest.mark.parametrize("repetitions", [1, 2, 12])
def test_figures_of_time_slots_use_the_palette_have_finite_numbers_and_are_deterministic(repetitions: int) -> None:
    known = {colour.light: colour.name for colour in PALETTE}
    figures = svgs_of(slots(repetitions))
    assert list(figures) == list(SLOT_KINDS)
    assert svgs_of(slots(repetitions)) == figures
    for name, svg in figures.items():
        assert {"pmod", "pipeline-linear"} <= set(texts_of(svg)), name
        assert "<title>w: " in svg
        assert not re.search(r"nan|inf\b", svg, re.IGNORECASE), name
        for element in ElementTree.fromstring(svg).iter():  # noqa: S314 - our own file
            classes = (element.get("class") or "").split()
            for key, letter in (("fill", "f"), ("stroke", "k")):
                value = element.get(key)
                if value not in (None, "none"):
                    assert f"{letter}-{known[value]}" in classes, (name, element.tag, value)


def test_every_panel_has_its_column_and_a_gap_at_unknown_values() -> None:
    data = slots(1, ["pmod"])
    panels = [*styled(slot_stages, data).axes, *styled(slot_buffers, data).axes[:2]]
    for axes, column in zip(panels, COLUMNS, strict=True):
        line = axes.lines[0]
        xs, ys = line.get_xdata().tolist(), line.get_ydata().tolist()
        assert str(list(zip(xs, ys, strict=True))) == str(data.over_time[column][0].points)
        assert math.isnan(ys[2])


def test_the_measured_and_the_predicted_length_have_the_same_scale() -> None:
    data = slots()
    long = [replace(line, points=[(x, 40 * y) for x, y in line.points]) for line in data.over_time["busy_slot_ms"]]
    axes = styled(slot_stages, replace(data, over_time={**data.over_time, "busy_slot_ms": long})).axes
    heights = [each.get_ylim()[1] for each in axes]
    assert heights[3] == heights[4] > 200 > 40 > max(heights[:3])


def test_stalls_are_dots_with_a_line_where_measured_equals_predicted() -> None:
    axes = styled(slot_buffers, slots(2)).axes[2]
    *dots, equal = axes.lines
    assert [list(zip(each.get_xdata(), each.get_ydata(), strict=True)) for each in dots] == [
        [(2.0, 1.5), (4.0, 4.5)],
        [(2.0, 1.5), (4.0, 5.5)],
    ] * 2
    assert [each.get_markerfacecolor() == "none" for each in dots] == [True, False, False, False]
    assert list(equal.get_xdata()) == list(equal.get_ydata()) == [0, 4.0 * 1.08]
    # The highest dot is within the axes.
    assert axes.get_ylim()[1] > 5.5


def test_unknown_values_are_not_available_and_not_0() -> None:
    data = slots()
    empty = without_columns(without_columns(data, "pmod", *COLUMNS), "pipeline-linear", *COLUMNS)
    empty = replace(empty, stalls=[replace(line, points=[]) for line in data.stalls])
    stages, buffers = svgs_of(empty).values()
    assert texts_of(stages).count("not available") == 5
    assert texts_of(buffers).count("not available") == 3
    without_stalls = replace(empty, stalled_slots=dict.fromkeys(data.looks, 0))
    assert texts_of(svgs_of(without_stalls)["slot-buffers"]).count("no stalls") == 1


def test_a_scheduler_that_lacks_a_value_is_named_in_its_panel() -> None:
    data = without_columns(slots(), "pmod", "packing_ms")
    stalls = [replace(line, points=[]) if line.scheduler == "pmod" else line for line in data.stalls]
    data = replace(data, stalls=stalls, stalled_slots={"pmod": 0, "pipeline-linear": 7})
    stages, buffers = (" / ".join(texts_of(svg)) for svg in svgs_of(data).values())
    assert "K, packing of results into outboxes; pmod: not available /" in stages
    assert stages.count("not available") == 1
    assert "stalls: measured against predicted; pmod: no stalls /" in buffers


def test_changes_are_numbered_bands_in_panels_over_time() -> None:
    data = slots()
    after = svgs_of(replace(data, bands={"pmod": [Band("t1", 3.0, 4.5), Band("2", 40, 41)]}))
    assert [texts_of(svg).count(" t1") for svg in after.values()] == [5, 2]
    # A band after the end is not drawn.
    assert not any({" 2", "2 "} & set(texts_of(svg)) for svg in after.values())


def test_a_single_point_is_a_mark() -> None:
    data = slots(1, ["pmod"])
    one = [replace(line, points=line.points[:1], suspect=False) for line in data.over_time["spread"]]
    (line,) = styled(slot_buffers, replace(data, over_time={**data.over_time, "spread": one})).axes[1].lines
    assert line.get_marker() == "."


def test_texts_of_many_schedulers_fit_into_the_figure() -> None:
    for svg in svgs_of(slots(1, [f"scheduler-{at}" for at in range(19)])).values():
        root = ElementTree.fromstring(svg)  # noqa: S314 - our own file
        _, _, width, height = map(float, root.get("viewBox", "").split())
        for text in root.iter(f"{SVG}text"):
            assert 0 <= float(text.get("y", "0")) <= height
            assert 0 <= float(text.get("x", "0")) <= width


def rows(folder: Path, scheduler: str) -> dict[str, list[dict[str, Any]]]:
    """Return tables of time slots of a scheduler's runs: two steps, the second of which is idle."""
    names = sorted(path.name for path in (folder / "runs").iterdir() if f"-{scheduler}-" in path.name)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in SPARK_COLUMNS}
    none = dict.fromkeys(SPARK_COLUMNS["slot_timeline"])
    for at, name in enumerate(names):
        measured = {"stalled_slots": 3, "stall_predicted_ms": 2.0, "stall_ms": 1.0 + at}
        times = dict.fromkeys(COLUMNS[:-1], 1.0 + at)
        found["slot_timeline"] += [
            {**none, "run": name, "second": 0, "step_s": 1, "slots": 9, **measured, **times},
            {**none, "run": name, "second": 1, "step_s": 1, "slots": 9, "stalled_slots": 0, "buffer_percent": 0.0},
        ]
        found["slots"].append({**dict.fromkeys(SPARK_COLUMNS["slots"]), "run": name, "slots": 18, **measured})
        found["slot_balance"].append({"run": name, "second": 0, "nodes": 2, "parts_per_node": 4.0, "spread": 1.5})
    return found


def slot_data_of(folder: Path, tables: Mapping[str, list[dict[str, Any]]]) -> SlotData:
    campaign = load_campaign(folder)
    return slot_data(campaign, workload_data(campaign, "wordcount", tables, []), tables)


@pytest.fixture
def campaign(campaign_maker: Maker, tmp_path: Path) -> Path:
    return campaign_maker(tmp_path / "c", workloads=["wordcount"], repetitions=2)


def test_rows_become_lines_of_the_schedulers_that_have_them(campaign: Path) -> None:
    data = slot_data_of(campaign, rows(campaign, "top-storm"))
    assert list(data.looks) == ["top-storm"]
    assert data.looks["top-storm"] == look(1)
    assert [line.repetition for line in data.over_time["transfer_ms"]] == [1, 2]
    assert [str(list(line.points)) for line in data.over_time["transfer_ms"]] == [
        "[(0.5, 1.0), (1.5, nan)]",
        "[(0.5, 2.0), (1.5, nan)]",
    ]
    assert list(data.over_time["buffer_percent"][0].points) == [(0.5, 1.0), (1.5, 0.0)]
    assert list(data.over_time["spread"][0].points) == [(2.5, 1.5)]
    assert [list(line.points) for line in data.stalls] == [[(2.0, 1.0)], [(2.0, 2.0)]]
    assert data.stalled_slots == {"top-storm": 6}


def test_from_ten_repetitions_on_a_stall_is_the_mean_of_a_run(campaign_maker: Maker, tmp_path: Path) -> None:
    folder = campaign_maker(tmp_path / "c", workloads=["wordcount"], repetitions=10, duration_s=1.0, empty_traces=True)
    tables = rows(folder, "even")
    for row in tables["slots"]:
        row["stall_predicted_ms"] = 8.0
    assert {x for line in slot_data_of(folder, tables).stalls for x, _ in line.points} == {8.0}


def build_report(folder: Path, tables: dict[str, list[dict[str, Any]]]) -> tuple[str, list[str]]:
    """Return the page, and the names of the figures of time slots."""
    page = report_without_spark(folder, tables)
    return page, sorted(path.name for path in (folder / "report" / "figures").glob("*-slot-*"))


def test_the_page_has_the_figures_beside_the_tables_of_time_slots(campaign: Path) -> None:
    tables = rows(campaign, "top-storm")
    tables["slots"][0]["buffer_percent"] = 0.0000541
    html, files = build_report(campaign, tables)
    # A small value is not shown as 0.
    assert "<td>5.41e-05</td>" in html
    assert files == [f"wordcount-{name}.svg" for name in sorted(SLOT_KINDS)]
    assert html.index("<h3>Time slots</h3>") < html.index("Stages of time slots</text>")
    assert all(kind.caption in html for kind in SLOT_KINDS.values())


def test_a_campaign_without_communication_schedules_has_no_such_figures(campaign: Path) -> None:
    html, files = build_report(campaign, {name: [] for name in SPARK_COLUMNS})
    assert files == []
    assert "Stages of time slots" not in html


def test_tables_of_time_slots_need_no_spark_where_there_are_none(campaign: Path, tmp_path: Path) -> None:
    no_spark: Any = None
    traces = Traces(no_spark, load_campaign(campaign).counted, tmp_path)
    assert [collected(traces, name) for name in ("slots", "slot_balance", "slot_timeline")] == [[], [], []]


def test_changes_are_marked_in_figures_of_schedulers_with_time_slots(campaign: Path) -> None:
    for path in campaign.glob("runs/*/run.json"):
        record: dict[str, Any] = json.loads(path.read_text())
        record["measured"]["revision_costs"] = [{"number": 1, "begun_s": 1.5, "ended_s": 1.75, "recovered_s": 2.0}]
        path.write_text(json.dumps(record))
    data = slot_data_of(campaign, rows(campaign, "top-storm"))
    assert data.bands == {"top-storm": [Band("1", 0.5, 1.0)]}
