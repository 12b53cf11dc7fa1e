"""Topologies whose components are scaled: where the runtime adds executors, and online schedulers afterwards."""

import pytest
from observed_rounds import chain, nodes, observed

from inventory.errors import RunError
from scheduler.online.observation import Change, problem_at
from scheduler.online.replanner import Replan, slots_of_added
from scheduler.online.validation import make_online_scheduler
from scheduler.problem import Problem, Slot
from workloads.scaling import resized

SCHEDULERS = ("aniello-online", "d-storm", "er-stream", "i-scheduler", "matrix", "p-scheduler", "t-storm", "even")
CLUSTER = nodes(capacity=8.0, cores=4)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_revise_after_every_change_of_parallelism(name: str) -> None:
    scheduler = make_online_scheduler(name, Replan() if name == "even" else None)
    for number, size in enumerate((2, 4, 3, 1, 2), 1):
        at_s = 400.0 * number
        executors = [executor.name for executor in resized(chain(), {"b": size}).executors]
        places = {executor: f"n{at % 2 + 1}/0" for at, executor in enumerate(executors)}
        rates = {("s[0]", f"b[{at}]"): 50.0 for at in range(size)} | {(f"b[{at}]", "k[1]"): 50.0 for at in range(size)}
        observation = observed(at_s, places, rates, cluster=CLUSTER, changes=[Change.of(at_s - 300, "scale", "b")])
        revision = scheduler.revise(problem_at(Problem(CLUSTER, (chain(),)), observation), observation)
        assert revision is None or {move.executor.name for move in revision.moves} <= {*executors}


PLACES = {
    "s[0]": Slot("n1", 1),
    "s[1]": Slot("n2", 0),
    "b[0]": Slot("n1", 1),
    "b[1]": Slot("n2", 1),
    "k[0]": Slot("n2", 0),
    "k[1]": Slot("n2", 1),
}


@pytest.mark.parametrize(
    ("away", "sizes", "added"),
    [
        # Each node has one b. n1 has fewer executors and gets b[2]; then n2 has fewer of b.
        ((), {"b": 4}, {"b[2]": Slot("n1", 1), "b[3]": Slot("n2", 0)}),
        # n1 has no k.
        ((), {"k": 4}, {"k[2]": Slot("n1", 1), "k[3]": Slot("n1", 1)}),
        # Without b[1] and k[1], n1 and n2 have two executors each, and n1 is listed first.
        ((), {"b": 1, "k": 1, "s": 3}, {"s[2]": Slot("n1", 1)}),
        (("n1",), {"b": 3}, {"b[2]": Slot("n2", 0)}),
        # n3 is not in use, but all nodes in use are unavailable.
        (("n1", "n2"), {"b": 3}, {"b[2]": Slot("n3", 0)}),
        ((), {"b": 1}, {}),
    ],
)
def test_an_added_executor_goes_to_the_node_in_use_with_the_fewest_of_its_component(
    away: tuple[str, ...], sizes: dict[str, int], added: dict[str, Slot]
) -> None:
    assert slots_of_added(Problem(CLUSTER, (chain(),)), PLACES, set(away), sizes) == added


def test_executors_cannot_be_added_without_a_node() -> None:
    with pytest.raises(RunError, match="no node has a slot for more executors"):
        slots_of_added(Problem(CLUSTER, (chain(),)), PLACES, {"n1", "n2", "n3"}, {"b": 3})
