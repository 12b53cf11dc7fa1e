"""docs/online.md: its table of schedulers agrees with the code, and its examples are valid."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from campaign.agenda.agenda import agenda_of
from campaign.agenda.plan import plan_of
from inventory.documents import parse_document
from inventory.reading import read_cluster
from scheduler.online.revision import Rhythm
from scheduler.registry import scheduler_class, scheduler_names

PAGE = (Path(__file__).parents[1] / "docs" / "online.md").read_text()
ROWS = dict(re.findall(r"^\| \[`([\w-]+)`\]\(schedulers/\1\.md\) \| (.*) \|$", PAGE, re.MULTILINE))
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
"""Agenda of the first example; hosts and agenda of the second, which `tests/emulated` runs."""

ONLINE = [name for name in scheduler_names() if hasattr(scheduler_class(name), "rhythm")]


def test_the_table_has_every_online_scheduler() -> None:
    assert list(ROWS) == ONLINE


@pytest.mark.parametrize("name", ONLINE)
def test_the_table_has_the_start_and_the_rhythm_of_a_scheduler(name: str) -> None:
    kind = scheduler_class(name)
    rhythm: Rhythm = kind.rhythm  # type: ignore[attr-defined]
    start = getattr(kind.Params(), "initial", None)
    average = f"ewma {rhythm.newest:g}" if rhythm.average == "ewma" else rhythm.average
    assert ROWS[name].split(" | ")[:4] == [
        f"`{start}`" if start else "itself",
        f"{rhythm.window_s:g} s, {rhythm.sample_s:g} s",
        average,
        "at changes" if rhythm.first_s is None else f"at {rhythm.first_s:g} s, every {rhythm.ask_s:g} s",
    ]


@pytest.mark.parametrize("name", ONLINE)
def test_parameters_of_the_table_exist_with_its_defaults(name: str) -> None:
    params = msgspec.to_builtins(scheduler_class(name).Params())
    triggers = ROWS[name].split(" | ")[4]
    assert set(re.findall(r"`(\w+)`", triggers)) <= params.keys()
    for key, value in re.findall(r"`(\w+)` \(([\d.]+)", triggers):
        assert params[key] == float(value)


def test_the_example_is_an_agenda_of_under_two_minutes() -> None:
    plan = plan_of(agenda_of(parse_document(EXAMPLES[0], "watch.yaml")), read_cluster("loopback"))
    assert set(plan.online) == {"live", "restart"}
    assert {label: run.revision.how for label, run in plan.online.items()} == {"live": "live", "restart": "restart"}
    assert len(plan.agenda.schedulers) * (plan.agenda.warmup_s + plan.agenda.duration_s) < 100
    for run in plan.online.values():
        assert run.rhythm.first_s is not None
        # Both windows of a pay-back need ten seconds.
        assert 10 <= run.rhythm.first_s <= plan.agenda.duration_s - 12


def test_the_example_with_slow_links_takes_two_minutes_on_nodes_with_room_for_all_executors_on_two() -> None:
    hosts = yaml.safe_load(EXAMPLES[1])["hosts"]
    agenda = agenda_of(parse_document(EXAMPLES[2], "gain.yaml")).value
    assert len(agenda.schedulers) * (agenda.warmup_s + agenda.duration_s) < 100
    assert [host["ansible_host"] for host in hosts.values()] == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]
    assert {host["millrace_capacity"] * 2 for host in hosts.values()} == {24}
