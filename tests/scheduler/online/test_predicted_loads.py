"""Predicted loads of nodes stay within what files have, whatever was measured."""

from msgspec.structs import replace as replaced
from observed_rounds import ObservedCluster, rates_of
from problems import chain

from inventory.cluster import Cluster, Node
from scheduler.algorithms.er_stream import ErStream, ErStreamParams
from scheduler.online.observation import Observation
from scheduler.online.validation import CheckedOnline


def test_a_node_whose_executors_were_measured_above_its_own_load_is_expected_at_zero() -> None:
    """CPU times of executors and of their node are read at different moments: their sum may exceed the node's."""
    simulated = ObservedCluster(
        nodes=Cluster(tuple(Node(id=name, cpu=100, slots=3) for name in ("n1", "n2"))),
        topology=chain(2, 2),
        places={"a[0]": "n1", "b[0]": "n2", "a[1]": "n2", "b[1]": "n1"},
        points={"a[0]": 10.0, "b[0]": 10.0, "a[1]": 10.0, "b[1]": 10.0},
        rates=rates_of({"a0-b0": 100, "a1-b1": 90, "a0-b1": 1}),
    )
    er_stream = CheckedOnline(ErStream, ErStreamParams(population=8, generations=20))

    def window() -> Observation:
        observation = simulated.window()
        executors = {
            name: replaced(executor, load=15.0 if name in ("b[1]", "a[1]") else 0.1)
            for name, executor in observation.executors.items()
        }
        nodes = {name: replaced(node, load=0.1) for name, node in observation.nodes.items()}
        return replaced(observation, executors=executors, nodes=nodes)

    found = None
    while simulated.at_s < 60 and (found is None or not found.moves):
        found = er_stream.revise(simulated.problem, window())
    assert found is not None
    assert found.moves
    assert min(found.expects.load.values()) == 0.0
