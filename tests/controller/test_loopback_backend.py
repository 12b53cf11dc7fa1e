"""Loopback nodes share one meter: its lag, measured at any node, applies to all."""

from pathlib import Path

from controller.nodes.backend import LoopbackBackend
from inventory.cluster import Cluster, Node
from inventory.values import MeterLag


def test_the_lag_of_this_hosts_meter_is_that_of_all_nodes(tmp_path: Path) -> None:
    lag = MeterLag(2.0, 0.3)
    nodes = (Node(id="n1", address="127.0.0.2"), Node(id="n2", address="127.0.0.3", meter_lag=lag))
    members = LoopbackBackend(Cluster(nodes=nodes)).members("r", tmp_path)
    assert {node: member.meter_lag for node, member in members.items()} == {"n1": lag, "n2": lag}
    members = LoopbackBackend(Cluster(nodes=nodes[:1])).members("r", tmp_path)
    assert members["n1"].meter_lag is None
