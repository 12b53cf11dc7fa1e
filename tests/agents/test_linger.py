"""Rows wait for others only where a worker is busy, and there so long that it can do its work."""

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.worker.channels.linger import MAX_LINGER_NS, FlushTimer, Linger, linger_ns
from inventory.times import NS


@dataclass(eq=False)
class Held:
    """A channel end that notes when it is flushed."""

    timer: FlushTimer
    peer: int = 0
    is_local: bool = False
    since_ns: int = 0
    is_empty: bool = True
    flushed_ns: list[int] = field(default_factory=list)

    def add(self) -> None:
        if self.is_empty:
            self.since_ns, self.is_empty = self.timer.watch(self), False

    def flush(self) -> None:
        self.flushed_ns.append(self.timer.now_ns)
        self.is_empty = True


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_busier_worker_lets_rows_wait_at_least_as_long(first: float, second: float) -> None:
    waits = [linger_ns(each) for each in sorted([first, second])]
    assert 0 <= waits[0] <= waits[1] <= MAX_LINGER_NS


def test_an_idle_worker_lets_no_row_wait_and_a_busy_one_as_long_as_is_allowed() -> None:
    assert (linger_ns(0.0), linger_ns(0.25)) == (0, 0)
    assert (linger_ns(0.95), linger_ns(1.0)) == (MAX_LINGER_NS, MAX_LINGER_NS)


@pytest.mark.parametrize("busy", [0.1, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("pass_ns", [20_000, 1_000_000, 50_000_000])
def test_the_wait_is_that_of_the_utilisation_however_long_passes_are(busy: float, pass_ns: int) -> None:
    linger, now = Linger(), 0
    for _ in range(max(100, NS // pass_ns)):
        asleep = round(pass_ns * (1 - busy))
        now += pass_ns
        linger.update(now, asleep)
    assert linger.utilisation == pytest.approx(busy, abs=0.01)
    assert linger.ns == pytest.approx(linger_ns(busy), abs=50_000)


@pytest.mark.parametrize(("busy", "waits"), [(0.1, False), (0.6, False), (1.0, True)])
def test_rows_within_a_worker_wait_only_while_hardly_any_time_is_left(busy: float, waits: bool) -> None:
    timer = FlushTimer()
    for _ in range(100):
        timer.now_ns += 5_000_000
        timer.linger.update(timer.now_ns, round(5_000_000 * (1 - busy)))
    local, remote = Held(timer, is_local=True), Held(timer, peer=7)
    local.add()
    remote.add()
    assert timer.flushes_at_once == (not waits)
    timer.flush_old()
    assert bool(local.flushed_ns) == (not waits)
    assert bool(remote.flushed_ns) == (busy < 0.25)
    timer.now_ns += MAX_LINGER_NS
    timer.flush_old()
    assert (len(local.flushed_ns), len(remote.flushed_ns)) == (1, 1)


def test_a_burst_is_forgotten_soon() -> None:
    linger, now = Linger(), 0
    for _ in range(100):
        now += 1_000_000
        linger.update(now, 0)
    assert linger.ns == MAX_LINGER_NS
    # One pass after a second of sleep.
    linger.update(now + NS, NS)
    assert linger.ns == 0


@given(st.integers(0, 10 * MAX_LINGER_NS), st.lists(st.tuples(st.integers(0, NS), st.floats(0, 1)), max_size=20))
def test_a_fixed_wait_stays_whatever_the_load_is(fixed: int, passes: list[tuple[int, float]]) -> None:
    linger, now = Linger(fixed), 0
    for span, asleep in passes:
        now += span
        assert not linger.update(now, round(span * asleep))
        assert linger.ns == fixed


def test_rows_to_a_busy_peer_wait_as_long_as_it_has_announced_and_others_do_not() -> None:
    timer = FlushTimer()
    timer.peers_ns[7] = 500_000
    busy, idle = Held(timer, peer=7), Held(timer, peer=8)
    busy.add()
    idle.add()
    assert timer.flushes_at_once
    timer.flush_old()
    assert (busy.flushed_ns, idle.flushed_ns) == ([], [0])
    assert timer.next_ns == 500_000
    timer.now_ns = 499_999
    timer.flush_old()
    assert not busy.flushed_ns
    timer.now_ns = 500_000
    timer.flush_old()
    assert (busy.flushed_ns, timer.next_ns) == ([500_000], None)


def test_rows_of_a_busy_worker_wait_as_long_as_its_own_wait_also_to_idle_peers() -> None:
    timer = FlushTimer(400_000)
    timer.peers_ns[7] = 100_000
    ends = [Held(timer, peer=7), Held(timer, peer=8)]
    for end in ends:
        end.add()
    assert not timer.flushes_at_once
    assert timer.next_ns == 400_000
    timer.now_ns = 400_000
    timer.flush_old()
    assert [end.flushed_ns for end in ends] == [[400_000], [400_000]]


def test_a_peer_that_is_idle_again_gets_the_rows_that_waited_for_it() -> None:
    timer = FlushTimer()
    timer.peers_ns[7] = MAX_LINGER_NS
    end = Held(timer, peer=7)
    end.add()
    timer.flush_old()
    assert not end.flushed_ns
    timer.peers_ns[7] = 0
    timer.flush_old()
    assert end.flushed_ns == [0]


@given(
    rate=st.floats(100, 200_000),
    batch_us=st.floats(5, 300),
    share=st.floats(0, 0.55),
)
@example(rate=40_000, batch_us=60, share=0.5)
@example(rate=200_000, batch_us=300, share=0.55)
def test_a_worker_that_could_do_its_work_in_large_batches_is_not_ruined_by_small_ones(
    rate: float, batch_us: float, share: float
) -> None:
    """A worker in virtual time: rows come evenly, and all that wait are processed when the first has waited enough.

    With batches of `MAX_LINGER_NS` it would be busy at most 70 % of the time: `share` for the rows, the rest for the
    batches.
    """
    row_ns = share * NS / rate
    batch_ns = min(batch_us * 1_000, 0.15 * MAX_LINGER_NS)
    timer, now, done, latest = FlushTimer(), 0.0, 0, 0.0
    linger = timer.linger
    while now < 2 * NS:
        due = (done + 1) * NS / rate + linger.ns
        wake = max(now, due)
        linger.update(round(wake), round(wake - now))
        rows = max(1, int(wake * rate / NS) - done)
        if wake > NS:
            latest = max(latest, wake - (done + 1) * NS / rate)
        done += rows
        now = wake + batch_ns + rows * row_ns
    # Once it has adapted, no row waits much longer than for a full wait and the batch before.
    assert latest < 2 * (MAX_LINGER_NS + batch_ns) / (1 - share), latest
