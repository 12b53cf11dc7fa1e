"""Restoring emulated nodes after the campaigns and faults of the other files."""

from pathlib import Path

import pytest
from emulated_lab import EmulatedLab, changes, millrace

from controller.emulation.description import description_in

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.timeout(900)]


def test_restoring_gives_every_node_back_as_it_was_found(provisioned: EmulatedLab, bare: dict[str, list[str]]) -> None:
    done = millrace("restore", str(provisioned.inventory), "--", "--limit", "all")
    assert done.returncode == 0, done.stderr[-3000:]
    assert changes(bare, provisioned.node_state()) == []
    assert millrace("restore", str(provisioned.inventory)).returncode == 0
    assert description_in(Path(provisioned.description.request.folder)) is None
