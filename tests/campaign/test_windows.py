"""Windows of the measured interval: in agendas, by the steps of rates, and measured from traces."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.collected_traces import collect
from agents.trace import TraceWriter
from analysis.measure.run_metrics import measure
from analysis.records.interval_metrics import Window
from campaign.agenda.agenda import agenda_of
from campaign.agenda.windows import SHORTEST_S, windows_of
from inventory.documents import parse_document, to_plain
from inventory.errors import InputError
from inventory.times import NS
from workloads.rates import Constant, Steps

AGENDA = """\
name: a
duration_s: 30
workloads: [{name: wordcount, rate: {kind: max}}]
schedulers: [even]
windows:
  - {name: calm, from_s: 0, to_s: 30}
  - """

WRONG = [
    ("{name: calm, from_s: 1, to_s: 2}", "windows[1].name: a second window is called 'calm'"),
    ("{name: step2, from_s: 1, to_s: 2}", "windows[1].name: 'step2' is the name of a step of a rate"),
    ("{name: peak, from_s: 5, to_s: 5}", "windows[1].to_s: 5 is not after from_s, 5"),
    ("{name: peak, from_s: 9, to_s: 5}", "windows[1].to_s: 5 is not after from_s, 9"),
    ("{name: peak, from_s: 9, to_s: 30.5}", "windows[1].to_s: 30.5 is after the end of the measured interval, which"),
    ("{name: peak, from_s: 9, to_s: 9.5}", "windows[1].to_s: the window is shorter than 1 s"),
    ("{name: peak, from_s: -1, to_s: 5}", "windows[1].from_s: got -1"),
    ("{name: a/b, from_s: 1, to_s: 5}", 'windows[1].name: got "a/b"'),
    ("{name: peak, from: 1, to_s: 5}", "windows[1].from: unknown key 'from'; did you mean 'from_s'"),
    ("{name: peak, to_s: 5}", "windows[1]: the key 'from_s' is missing"),
]


@pytest.mark.parametrize(("entry", "message"), WRONG)
def test_wrong_windows_are_refused_with_file_and_line(entry: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        agenda_of(parse_document(AGENDA + entry + "\n", "a.yaml"))
    assert str(raised.value).startswith("a.yaml:7: ")
    assert message in str(raised.value)


def test_windows_may_overlap_and_fill_the_interval() -> None:
    agenda = agenda_of(parse_document(AGENDA + "{name: steps, from_s: 2, to_s: 3}\n")).value
    assert [(w.name, w.from_s, w.to_s) for w in agenda.windows] == [("calm", 0, 30), ("steps", 2, 3)]


seconds = st.floats(0.25, 40).map(lambda value: round(value, 2))


@given(st.lists(seconds, max_size=6, unique=True), seconds, seconds)
def test_steps_of_a_rate_divide_the_measured_interval(starts: list[float], warmup_s: float, duration_s: float) -> None:
    steps = tuple((start, 100.0 + at) for at, start in enumerate([0.0, *sorted(starts)]))
    found = windows_of([], Steps(steps), warmup_s, duration_s)
    for window in found:
        number = int(window.name.removeprefix("step"))
        start_s = steps[number - 1][0] - warmup_s
        end_s = steps[number][0] - warmup_s if number < len(steps) else float("inf")
        assert window.from_s == pytest.approx(max(start_s, 0))
        assert window.to_s == pytest.approx(min(end_s, duration_s))
        assert window.to_s - window.from_s >= SHORTEST_S
        assert window.to_s - window.from_s < duration_s
    cuts = [0.0, *(s - warmup_s for s, _ in steps if 0 < s - warmup_s < duration_s), duration_s]
    parts = [b - a for a, b in pairwise(cuts)]
    assert len(found) == (sum(part >= SHORTEST_S for part in parts) if len(parts) > 1 else 0)


def test_windows_of_the_agenda_come_first_and_other_rates_add_none() -> None:
    own = Window(name="peak", from_s=1, to_s=2)
    assert windows_of([own], Constant(10), 0, 10) == [own]
    steps = windows_of([own], Steps(((0, 1), (4, 2))), 1, 10)
    assert [(w.name, w.from_s, w.to_s) for w in steps] == [("peak", 1, 2), ("step1", 0, 3), ("step2", 3, 10)]


WINDOWS = [Window(name=f"w{k}", from_s=k, to_s=k + 2) for k in (0, 2, 4)]


def measured(folder: Path, length_s: float, clock: int = 0) -> dict[str, Any]:
    """Return metrics of a worker that emits 100 tuples/s for four seconds, then 300, and delivers half."""
    start = 100 * NS
    writer = TraceWriter(folder, "r", "n1", 0)
    for at, kind in ((start, "measure_start"), (start + round(length_s * NS), "measure_end")):
        writer.add("event", at + clock, kind, "", None, None)
    due = 0
    for second in range(-1, 9):
        at, tuples = start + clock + second * NS, 100 if second <= 4 else 300
        due += tuples
        writer.add("throughput", at, "src[0]", "src", "spout", tuples, 0, 0, due, 0, None)
        writer.add("throughput", at, "snk[0]", "snk", "sink", 0, tuples // 2, None, None, None, None)
        writer.add("channel", at, "src[0]", "snk[0]", "d", "inter_node", "n1", tuples // 2, 1, 1, None)
        writer.add("latency", at, "snk[0]", tuples * 10_000, 10, None)
    writer.close()
    collect([folder], folder / "parquet")
    plain: dict[str, Any] = to_plain(measure(folder / "parquet", length_s, {}, windows=WINDOWS))
    return plain


@pytest.mark.parametrize("clock", [0, -50 * NS])
def test_every_window_has_the_metrics_of_its_own_part(tmp_path: Path, clock: int) -> None:
    found = measured(tmp_path, 6, clock)
    first, second, last = found["windows"]
    for window, rate in ((first, 100), (second, 100), (last, 300)):
        assert window["due_tuples_per_s"] == window["source_tuples_per_s"] == pytest.approx(rate)
        assert window["sink_tuples_per_s"] == window["throughput_tuples_per_s"] == pytest.approx(rate / 2)
        assert window["hops"] == {"intra_worker": 0, "inter_worker": 0, "inter_node": rate}
        assert (window["latency_ms"]["p50"], window["latency_ms"]["samples"]) == (rate / 100, 20)
        assert window["saturated"] is False
    assert [(w["name"], w["from_s"], w["to_s"], w["seconds"]) for w in (first, last)] == [
        ("w0", 0, 2, 2),
        ("w4", 4, 6, 2),
    ]
    assert found["hops"]["inter_node"] == sum(w["hops"]["inter_node"] for w in found["windows"])
    assert found["latency_ms"]["samples"] == sum(w["latency_ms"]["samples"] for w in found["windows"])


def test_windows_after_an_early_end_of_the_input_are_cut_or_unknown(tmp_path: Path) -> None:
    _, cut, unknown = measured(tmp_path, 3)["windows"]
    assert (cut["seconds"], cut["sink_tuples_per_s"], cut["latency_ms"]["samples"]) == (1, 50, 10)
    assert unknown["seconds"] == 0
    names = ("due_tuples_per_s", "source_tuples_per_s", "sink_tuples_per_s", "throughput_tuples_per_s", "saturated")
    assert {unknown[name] for name in names} == {None}
    assert {*unknown["hops"].values(), unknown["latency_ms"]["p50"]} == {None}


def test_windows_of_an_agenda_are_part_of_the_record_of_the_campaign(tmp_path: Path) -> None:
    from campaign.runner.open_campaign import new, resumed

    (tmp_path / "a.yaml").write_text(AGENDA + "{name: peak, from_s: 1, to_s: 2}\n")
    opened = new(str(tmp_path / "a.yaml"), None, tmp_path / "results")
    opened.store()
    agenda = json.loads((opened.folder / "campaign.json").read_text())["agenda"]
    assert agenda["windows"][1] == {"name": "peak", "from_s": 1.0, "to_s": 2.0}
    assert resumed(opened.folder, None, None, lambda: None).plan.agenda.windows == opened.plan.agenda.windows
