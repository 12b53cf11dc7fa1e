"""Loopback nodes: they share one meter, and their folders may disappear at any moment."""

import asyncio
from pathlib import Path

import pytest

from controller.nodes import transport
from controller.nodes.backend import LoopbackBackend
from controller.nodes.transport import LoopbackTransport
from inventory.cluster import Cluster, Node
from inventory.errors import RunError
from inventory.values import MeterLag


def test_the_lag_of_this_hosts_meter_is_that_of_all_nodes(tmp_path: Path) -> None:
    lag = MeterLag(2.0, 0.3)
    nodes = (Node(id="n1", address="127.0.0.2"), Node(id="n2", address="127.0.0.3", meter_lag=lag))
    members = LoopbackBackend(Cluster(nodes=nodes)).members("r", tmp_path)
    assert {node: member.meter_lag for node, member in members.items()} == {"n1": lag, "n2": lag}
    members = LoopbackBackend(Cluster(nodes=nodes[:1])).members("r", tmp_path)
    assert members["n1"].meter_lag is None


def test_a_file_that_disappears_while_it_is_replicated_is_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a lost node may disappear between the check for the file and its copy."""
    node = LoopbackTransport(tmp_path / "n1")
    (tmp_path / "n1" / "state").write_bytes(b"7")
    link = transport._link

    def lose_first(source: Path, target: Path) -> None:
        source.unlink()
        link(source, target)

    monkeypatch.setattr(transport, "_link", lose_first)
    with pytest.raises(RunError, match="there is no file state in "):
        asyncio.run(node.replicate("state", tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_a_copy_that_cannot_be_written_is_not_an_error_of_the_node(tmp_path: Path) -> None:
    node = LoopbackTransport(tmp_path / "n1")
    (tmp_path / "n1" / "state").write_bytes(b"7")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        asyncio.run(node.replicate("state", tmp_path / "file" / "copy"))
