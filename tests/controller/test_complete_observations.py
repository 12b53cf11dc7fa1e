"""Completeness of observations: all workers have reported, and the CPU of nodes and workers in use is known."""

from msgspec.structs import replace
from scripted_reports import ScriptedReports, observe, pass_time, slot, started

from agents.protocol import Progress, Vitals
from controller.coordinator.monitor import Monitor


def observed() -> tuple[ScriptedReports, Monitor]:
    """Return a run and its monitor after eight seconds."""
    run = ScriptedReports()
    monitor = started(run)
    pass_time(monitor, run, 8)
    return run, monitor


def test_a_worker_that_is_silent_for_two_and_a_half_samples_is_missing() -> None:
    run, monitor = observed()
    pass_time(monitor, run, 2, lambda node, report: isinstance(report, Vitals) or node != "n2")
    assert observe(monitor, run.at_s).complete
    late = observe(monitor, run.at_s + 0.6)
    assert (late.missing, late.complete) == (("n2/0",), False)
    pass_time(monitor, run, 1)
    assert observe(monitor, run.at_s).complete


def test_an_observation_needs_the_cpu_of_its_nodes() -> None:
    run, monitor = observed()
    monitor.placed({}, run.at_s)
    pass_time(monitor, run, 8, lambda _node, report: isinstance(report, Progress))
    assert not observe(monitor, run.at_s).complete
    pass_time(monitor, run, 2)
    assert observe(monitor, run.at_s).complete


def test_an_observation_needs_the_cpu_of_a_node_that_has_just_come_into_use() -> None:
    run, monitor = observed()
    run.move("b[0]", "n3/0")
    monitor.placed({"b[0]": slot("n3/0")}, run.at_s)
    pass_time(monitor, run, 8, lambda node, report: isinstance(report, Progress) or node != "n3")
    found = observe(monitor, run.at_s)
    assert (found.samples, found.missing, found.complete) == (5, (), False)
    assert found.nodes["n3"].load is None
    pass_time(monitor, run, 2)
    assert observe(monitor, run.at_s).complete


def test_an_observation_needs_the_cpu_of_a_worker_that_has_just_started() -> None:
    run, monitor = observed()
    run.move("b[0]", "n2/1")
    monitor.placed({"b[0]": slot("n2/1")}, run.at_s)
    for _ in range(8):
        run.advance(1.0)
        for node, report in run.reports():
            partial = replace(report, workers={0: report.workers[0]}) if isinstance(report, Vitals) else report
            monitor.record(node, partial, run.at_s)
    found = observe(monitor, run.at_s)
    assert (found.samples, found.missing, found.complete) == (5, (), False)
    pass_time(monitor, run, 1)
    assert observe(monitor, run.at_s).complete
