"""Files of a node on this host, whose folder may disappear at any moment."""

import asyncio
from pathlib import Path

import pytest

from controller.nodes import transport
from controller.nodes.transport import LoopbackTransport
from inventory.errors import RunError


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
