"""Clocks: the lowest one that keeps performance and load, raised at once, lowered after three equal answers."""

from math import exp, inf, isclose, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observed_rounds import ObservedCluster
from problems import chain

from inventory.cluster import Cluster, Node
from inventory.values import EnergyModel
from scheduler.online.clocks import ClockAnswer, ClockControl, View, cheapest_clock, choose_clock, watts
from scheduler.online.predicted_loads import PredictedLoads

GHZ = 1_000_000_000
TABLE = tuple(int(ghz * GHZ) for ghz in (0.8, 1.2, 1.6, 1.8, 2.0, 2.2, 2.4))
MODEL = EnergyModel(p_s=6.0, p_d=9.0)
H_MAX_S, THETA_S = 100.0, 0.012


def joules(model: EnergyModel, phi: float) -> float:
    """Return the energy of work that takes `H_MAX_S` at the reference clock (Eq. 10-13)."""
    return (model.p_s + model.p_d * phi**model.kappa) * H_MAX_S / phi


@pytest.mark.parametrize("view", ["stream", "batch"])
def test_the_published_node_keeps_its_performance(view: View) -> None:
    found = choose_clock(0.57, 0.85, 0.90, MODEL, TABLE, view)
    assert (found.rule, found.hz, found.feasible) == ("y_min", 2 * GHZ, True)
    assert found.phi == pytest.approx(0.824561, abs=5e-7)
    assert found.phi * 2.4 == pytest.approx(1.978947, abs=5e-7)
    assert found.needs["capacity"] == pytest.approx(0.670588, abs=5e-7)
    assert found.phi * 0.57 + 0.43 == pytest.approx(0.90)
    assert THETA_S * log(0.9) == pytest.approx(-0.0012643, abs=5e-8)
    assert exp(THETA_S * log(0.9) / THETA_S) == pytest.approx(0.90)
    assert pytest.approx(0.905) == 2.0 / 2.4 * 0.57 + 0.43


def test_power_and_energy_of_the_published_node() -> None:
    assert watts(MODEL, 1.0, 0.57) == pytest.approx(11.13)
    assert watts(MODEL, 0.824561, 0.57) == pytest.approx(9.488, abs=5e-4)
    assert watts(MODEL, 2.0 / 2.4, 0.57) == pytest.approx(9.5625)  # 9.563
    assert watts(MODEL, 2.0 / 2.4, 0.57) / 11.13 - 1 == pytest.approx(-0.141, abs=5e-4)
    assert cheapest_clock(MODEL) == pytest.approx(0.693361, abs=5e-7)
    assert joules(MODEL, 1.0) == 1500
    assert joules(MODEL, 0.824561) == pytest.approx(1339.6, abs=0.05)
    assert joules(MODEL, 2.0 / 2.4) == pytest.approx(1345.0, abs=0.05)


def test_the_printed_multiplier_is_positive_there() -> None:
    phi, load = 47 / 57, 0.57
    slope = MODEL.p_d * (MODEL.kappa - 1) * phi ** (MODEL.kappa - 2) - MODEL.p_s / phi**2
    gamma = H_MAX_S * slope * (phi * load + 1 - load) / (THETA_S * load)
    assert gamma == pytest.approx(79175, abs=0.5)


def test_the_load_may_bind_before_the_performance() -> None:
    found = choose_clock(0.74, 0.85, 0.90, MODEL, TABLE)
    assert (found.rule, found.hz) == ("capacity", 2_200_000_000)
    assert found.needs["capacity"] == pytest.approx(0.8706, abs=5e-5)
    assert found.needs["y_min"] == pytest.approx(0.8649, abs=5e-5)


@pytest.mark.parametrize(
    ("load", "performance", "model", "view", "rule", "hz", "feasible"),
    [
        (0.05, 0.9, MODEL, "stream", "f_min", TABLE[0], True),
        (0.05, 0.9, MODEL, "batch", "energy_min", 1_800_000_000, True),
        (0.0, 0.9, MODEL, "stream", "f_min", TABLE[0], True),
        (0.9, 0.9, MODEL, "stream", "f_max", TABLE[-1], False),
        (0.85, 0.9, MODEL, "stream", "capacity", TABLE[-1], True),
        (0.3, 1.0, MODEL, "stream", "y_min", TABLE[-1], True),
        (0.3, 0.9, EnergyModel(p_s=90.0, p_d=9.0), "batch", "f_max", TABLE[-1], True),
        (0.3, 0.9, EnergyModel(p_s=6.0, p_d=9.0, f_ref_ghz=2.6), "stream", "y_min", 1_800_000_000, True),
        (0.9, 0.99, EnergyModel(p_s=6.0, p_d=9.0, f_ref_ghz=2.6), "stream", "f_max", TABLE[-1], False),
    ],
)
def test_the_binding_rule(
    load: float, performance: float, model: EnergyModel, view: View, rule: str, hz: int, feasible: bool
) -> None:
    found = choose_clock(load, 0.85, performance, model, TABLE, view)
    assert (found.rule, found.hz, found.feasible) == (rule, hz, feasible)


def test_the_cheapest_clock_without_an_inner_minimum() -> None:
    assert cheapest_clock(EnergyModel(p_s=6.0, p_d=0.0)) == inf
    assert cheapest_clock(EnergyModel(p_s=6.0, p_d=9.0, kappa=1.0)) == inf
    assert cheapest_clock(EnergyModel(p_s=0.0, p_d=9.0)) == 0
    assert choose_clock(0.3, 0.0, 0.9, MODEL, TABLE).feasible is False


@given(
    st.floats(0, 1.5),
    st.floats(0.05, 1),
    st.floats(0.1, 1),
    st.sampled_from([MODEL, EnergyModel(p_s=1.0, p_d=30.0, kappa=2.0), EnergyModel(p_s=6.0, p_d=9.0, f_ref_ghz=3.0)]),
    st.lists(st.sampled_from(TABLE), min_size=2, unique=True),
    st.sampled_from(["stream", "batch"]),
)
def test_clocks_keep_performance_and_load_unless_marked_infeasible(
    load: float, bound: float, performance: float, model: EnergyModel, offered: list[int], view: View
) -> None:
    found = choose_clock(load, bound, performance, model, offered, view)
    phi = found.hz / (max(offered) if model.f_ref_ghz is None else 3e9)
    assert found.hz in offered
    limits_kept = phi * load + 1 - load >= performance - 1e-6 and load / phi <= bound + 1e-6
    assert limits_kept if found.feasible else found.hz == max(offered)
    lower = [hz for hz in offered if hz < found.hz]
    if lower and found.rule not in ("f_max", "f_min", "energy_min"):
        lower_phi = max(lower) / found.hz * phi
        assert lower_phi * load + 1 - load < performance + 1e-6 or load / lower_phi > bound - 1e-6
    if found.rule == "energy_min":
        assert isclose(found.phi, cheapest_clock(model))
        assert joules(model, found.phi) <= joules(model, min(1.0, found.phi * 1.1)) + 1e-6
        assert joules(model, found.phi) <= joules(model, found.phi * 0.9) + 1e-6


def slow_and_fast(points: float = 57.0, **node: object) -> ObservedCluster:
    """s[0] on n1 is critical; s[1] on n2, the published node, is far from critical."""
    given: dict[str, object] = {"cpu": 100, "frequencies_hz": TABLE, "power": MODEL, **node}
    return ObservedCluster(
        nodes=Cluster((Node(id="n1", cpu=100, frequencies_hz=TABLE, power=MODEL), Node(id="n2", **given))),  # type: ignore[arg-type]
        topology=chain(2, names="s"),
        places={"s[0]": "n1", "s[1]": "n2"},
        points={"s[0]": 30.0, "s[1]": points},
        delays={"s[0]": 0.1, "s[1]": 0.012},
        base=0.0,
    )


class ClockLoop:
    """Control loop: chooses clocks for every window and sets them."""

    def __init__(self, simulated: ObservedCluster, view: View = "stream") -> None:
        self.simulated = simulated
        self.clocks = ClockControl(0.9, 0.05, view)

    def window(self, received: tuple[str, ...] = ()) -> ClockAnswer:
        simulated, observation = self.simulated, self.simulated.window()
        loads = PredictedLoads(simulated.problem, observation, 0.85, self.clocks.ratios(simulated.nodes, observation))
        found = self.clocks.answer(simulated.problem.cluster, simulated.topology, observation, loads, received)
        simulated.requested_hz |= found.frequencies
        return found


def test_a_clock_is_lowered_at_the_third_equal_answer_and_raised_at_once() -> None:
    loop = ClockLoop(slow_and_fast())
    assert [dict(loop.window().frequencies) for _ in range(3)] == [{}, {}, {"n2": 2 * GHZ}]
    assert loop.simulated.load("n2") == pytest.approx(0.684)
    assert [dict(loop.window().frequencies) for _ in range(3)] == [{}, {}, {}]
    loop.simulated.points["s[1]"] = 74.0
    assert loop.simulated.load("n2") == pytest.approx(0.888)
    raised = loop.window()
    assert dict(raised.frequencies) == {"n2": TABLE[-1]}
    assert raised.details["clocks"]["n2"]["binding"] == "overloaded"
    loop.simulated.points["s[1]"] = 57.0
    assert [dict(loop.window().frequencies) for _ in range(3)] == [{}, {}, {"n2": 2 * GHZ}]


def test_at_a_higher_load_the_capacity_binds() -> None:
    loop = ClockLoop(slow_and_fast(74.0))
    answers = [loop.window() for _ in range(3)]
    assert [dict(answer.frequencies) for answer in answers] == [{}, {}, {"n2": 2_200_000_000}]
    account = answers[-1].details["clocks"]["n2"]
    assert (account["binding"], account["phi"], account["windows"]) == ("capacity", 0.870588, 3)


def test_the_account_has_what_the_clock_follows_from() -> None:
    found = ClockLoop(slow_and_fast()).window()
    assert found.details["critical"] == ["s[0]"]
    assert found.details["critical_executors"] == 1
    assert found.details["path_s"] == 0.1
    account = found.details["clocks"]["n2"]
    assert account.pop("y_min_s") == pytest.approx(-0.0012643, abs=5e-8)
    assert account == {
        "load": 0.57,
        "utilisation": 0.57,
        "bound": 0.85,
        "theta_s": 0.012,
        "p_slack": 0.12,
        "p_req": 0.9,
        "phi": 0.824561,
        "binding": "y_min",
        "feasible": True,
        "critical": [],
        "now_hz": 2.4e9,
        "hz": 2 * GHZ,
        "windows": 1,
        "sets": False,
    }
    assert found.details["clocks"]["n1"]["binding"] == "critical"
    assert found.watts == pytest.approx(11.13 + 6 + 9 * 0.30)


def test_the_predicted_power_is_that_of_the_new_clock() -> None:
    loop = ClockLoop(slow_and_fast())
    assert [loop.window().watts for _ in range(3)][-1] == pytest.approx(9.5625 + 6 + 9 * 0.30)
    assert ClockLoop(slow_and_fast(power=None)).window().watts is None


def test_a_different_answer_restarts_the_count() -> None:
    loop = ClockLoop(slow_and_fast())
    loop.window()
    loop.window()
    loop.simulated.points["s[1]"] = 74.0
    assert [dict(loop.window().frequencies) for _ in range(3)] == [{}, {}, {"n2": 2_200_000_000}]


def test_nothing_is_lowered_together_with_moves_nor_in_the_next_two_windows() -> None:
    loop = ClockLoop(slow_and_fast())
    loop.window()
    loop.window()
    assert [dict(loop.window(received).frequencies) for received in (("n1",), (), (), ())] == [
        {},
        {},
        {},
        {"n2": 2 * GHZ},
    ]


def test_a_node_that_becomes_critical_is_raised_at_once() -> None:
    loop = ClockLoop(slow_and_fast())
    loop.simulated.requested_hz["n2"] = TABLE[0]
    loop.simulated.points["s[1]"] = 5.0
    assert loop.window().details["clocks"]["n2"]["binding"] == "f_min"
    loop.simulated.delays = {"s[0]": 0.1, "s[1]": 0.097}
    found = loop.window()
    assert dict(found.frequencies) == {"n2": TABLE[-1]}
    assert found.details["clocks"]["n2"]["critical"] == ["s[1]"]


def test_the_performance_that_keeps_a_node_from_becoming_critical_binds() -> None:
    simulated = slow_and_fast()
    simulated.delays = {"s[0]": 0.1, "s[1]": 0.094}
    account = ClockLoop(simulated).window().details["clocks"]["n2"]
    assert (account["p_slack"], account["p_req"]) == (0.94, 0.94)
    assert account["phi"] == pytest.approx((0.94 - 0.43) / 0.57, abs=5e-7)


def test_delays_are_those_at_full_speed_so_that_a_slowed_node_stays_slow() -> None:
    simulated = slow_and_fast(20.0)
    simulated.delays = {"s[0]": 0.1, "s[1]": 0.094}
    loop = ClockLoop(simulated)
    frequencies = [dict(loop.window().frequencies) for _ in range(8)]
    assert frequencies == [{}, {}, {"n2": 1_800_000_000}, {}, {}, {}, {}, {}]


def test_an_executor_that_is_idle_for_a_window_keeps_its_last_delay() -> None:
    loop = ClockLoop(slow_and_fast())
    loop.window()
    loop.simulated.delays = {"s[1]": 0.012}
    assert loop.window().details["critical"] == ["s[0]"]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ({"frequencies_hz": None}, "there are no clocks to choose from"),
        ({"frequencies_hz": (GHZ,)}, "there are no clocks to choose from"),
        ({"power": None}, "it has no power model"),
        ({"power": EnergyModel(p_s=6.0, p_d=9.0, kappa=1.0)}, "by its power model a lower clock saves nothing"),
    ],
)
def test_nodes_without_a_choice_of_clocks_are_left_alone_with_a_reason(node: dict[str, object], reason: str) -> None:
    loop = ClockLoop(slow_and_fast(**node))
    found = [loop.window() for _ in range(3)][-1]
    assert found.details["clocks"]["n2"] == {"left_alone": reason}
    assert dict(found.frequencies) == {}


def test_nodes_that_cannot_be_judged_are_left_alone() -> None:
    simulated = slow_and_fast()
    simulated.places["s[1]"] = "n1"
    assert ClockLoop(simulated).window().details["clocks"]["n2"] == {"left_alone": "no executor runs on it"}
    simulated = slow_and_fast()
    simulated.delays = {}
    assert ClockLoop(simulated).window().details["clocks"]["n2"] == {"left_alone": "no compute delay was measured"}


def test_nodes_on_one_machine_are_left_alone() -> None:
    for facts in ({"host": "n1"}, {"address": "127.0.0.3"}):
        simulated = slow_and_fast(**facts)
        first = Node(id="n1", cpu=100, frequencies_hz=TABLE, power=MODEL, address="127.0.0.2")
        simulated.nodes = Cluster((first if "address" in facts else simulated.nodes.nodes[0], simulated.nodes.nodes[1]))
        loop = ClockLoop(simulated)
        found = [loop.window() for _ in range(3)][-1]
        reason = {"left_alone": "it is on one machine with other nodes"}
        assert found.details["clocks"] == {"n1": reason, "n2": reason}
        assert dict(found.frequencies) == {}


def test_a_slowed_node_is_raised_for_its_load_also_where_no_clock_is_chosen() -> None:
    simulated = slow_and_fast()
    simulated.delays, simulated.requested_hz = {}, {"n2": 1_200_000_000}
    loop = ClockLoop(simulated)
    found = loop.window()
    assert dict(found.frequencies) == {"n2": TABLE[-1]}
    account = {"left_alone": "no compute delay was measured", "binding": "overloaded", "hz": TABLE[-1]}
    assert found.details["clocks"]["n2"] == account
    assert dict(loop.window().frequencies) == {}


def test_a_clock_that_the_driver_rounds_is_not_asked_for_again() -> None:
    loop = ClockLoop(slow_and_fast())
    assert [dict(loop.window().frequencies) for _ in range(3)][-1] == {"n2": 2 * GHZ}
    loop.simulated.requested_hz["n2"] = 1_976_000_000
    assert [dict(loop.window().frequencies) for _ in range(4)] == [{}, {}, {}, {}]
    loop.simulated.requested_hz["n2"] = 1_600_000_000  # set by another program
    assert dict(loop.window().frequencies) == {"n2": TABLE[-1]}  # 0.855


def test_energy_per_tuple_does_not_overload_a_node() -> None:
    """For `batch`, the paper has phi = max(phi_y, phi*) = max((0.90 - 0.20) / 0.80, 0.6934) = 0.875, 2.1 GHz,
    set to 2.2 GHz.

    The load would be 0.80 * 2.4 / 2.2 = 0.873, above B: the clock would be raised at once and lowered three windows
    later.
    """
    found = choose_clock(0.80, 0.85, 0.90, MODEL, TABLE, "batch")
    assert (found.rule, found.hz, found.feasible) == ("capacity", TABLE[-1], True)
    loop = ClockLoop(slow_and_fast(80.0), "batch")
    assert [dict(loop.window().frequencies) for _ in range(8)] == [{}] * 8
