"""Parts of windows: samples, transport, power, percentiles, heartbeats."""

from agents.protocol import Progress, Vitals
from analysis.measure.live_rates import Heartbeats, Samples, joined, mean_watts
from analysis.measure.observations import weighted_median, with_transport

S = 10**9


def samples(*times_s: float, most: int = 10, sample_s: float = 1.0) -> Samples[Progress]:
    """Return samples of reports at these times."""
    found: Samples[Progress] = Samples(most)
    for at_s in times_s:
        at_ns = round(at_s * S)
        found = found.add(at_ns, Progress(epoch=1, slot=0, at_ns=at_ns, emitted=0, sunk=round(at_s * 100)), sample_s)
    return found


def intervals(series: Samples[Progress], most: int, sample_s: float = 1.0) -> list[tuple[int, int, float, int]]:
    return [(i.before.sunk, i.after.sunk, i.seconds, i.times) for i in series.intervals(most, sample_s)]


def test_an_interval_counts_as_samples_by_its_length_up_to_the_requested_number() -> None:
    series = samples(0, 1, 4, 5)
    assert intervals(series, 10) == [(0, 100, 1.0, 1), (100, 400, 3.0, 3), (400, 500, 1.0, 1)]
    assert intervals(series, 3) == [(100, 400, 3.0, 2), (400, 500, 1.0, 1)]
    assert intervals(samples(0), 3) == []


def test_reports_between_samples_are_left_out() -> None:
    assert intervals(samples(0, 0.3, 1, 1.2, 2), 10) == [(0, 100, 1.0, 1), (100, 200, 1.0, 1)]
    assert intervals(samples(*range(41), sample_s=20), 10, 20) == [(0, 2000, 20.0, 1), (2000, 4000, 20.0, 1)]


def test_only_as_many_intervals_are_kept_as_are_used() -> None:
    assert intervals(samples(*range(9), most=2), 10) == [(600, 700, 1.0, 1), (700, 800, 1.0, 1)]


def test_all_intervals_are_joined_except_the_oldest_which_may_count_in_part() -> None:
    found = joined(samples(0, 3, 4, 5).intervals(4, 1.0))
    assert [(i.before.sunk, i.after.sunk, i.seconds, i.times) for i in found] == [(0, 300, 3.0, 2), (300, 500, 2.0, 2)]


def test_transport_is_shared_by_remote_tuples() -> None:
    assert with_transport(50, {"a": 20, "b": 10}, {"a": 300, "b": 100}) == {"a": 35, "b": 15}
    assert with_transport(60, {"a": 20, "b": 10}, {}) == {"a": 40, "b": 20}
    assert with_transport(None, {"a": 20, "b": 10}, {"a": 1}) == {"a": 20, "b": 10}
    assert with_transport(25, {"a": 20, "b": 10}, {"a": 1}) == {"a": 20, "b": 10}
    assert with_transport(25, {"a": 0, "b": 0}, {}) == {"a": 0, "b": 0}


def test_power_is_that_of_the_intervals_with_energy_by_the_meters_own_times() -> None:
    series: Samples[Vitals] = Samples(10)
    readings = [(0, 100.0, 0), (1, 130.0, 2), (2, None, None), (3, 300.0, 5), (4, 310.0, 6)]
    for at_s, joules, at in readings:
        read_ns = None if at is None else at * S
        series = series.add(at_s * S, Vitals(epoch=1, at_ns=at_s * S, joules=joules, joules_ns=read_ns), 1.0)
    assert mean_watts(series.intervals(10, 1.0)) == (30 + 10) / 3
    assert mean_watts(series.intervals(2, 1.0)) == 10
    assert mean_watts(series.intervals(10, 1.0)[1:2]) is None


def test_a_meter_without_new_readings_gives_no_power() -> None:
    series: Samples[Vitals] = Samples(10)
    for at_s in range(3):
        series = series.add(at_s * S, Vitals(epoch=1, at_ns=at_s * S, joules=5.0, joules_ns=7), 1.0)
    assert mean_watts(series.intervals(10, 1.0)) is None


def test_percentiles_are_weighted_by_their_tuples() -> None:
    assert weighted_median([(9.0, 1), (5.0, 10), (7.0, 8)]) == 5.0
    assert weighted_median([(9.0, 1), (5.0, 10), (7.0, 80)]) == 7.0
    assert weighted_median([(9.0, 0), (5.0, 0)]) is None


def test_heartbeats_are_the_share_answered_in_the_last_minute() -> None:
    heartbeats = Heartbeats()
    assert heartbeats.share(0) is None
    shares: dict[int, float | None] = {}
    for at in range(1, 151):
        if not 60 < at <= 75:
            heartbeats = heartbeats.answered(at * 1.004)
        shares[at] = heartbeats.share(at * 1.004 + 0.3)
    assert shares[1] == shares[60] == 1.0
    assert [round(shares[at] or 0.0, 2) for at in (75, 100, 120)] == [0.76, 0.75, 0.75]
    assert shares[150] == 1.0
    assert heartbeats.share(151 + 60) == 0.0
