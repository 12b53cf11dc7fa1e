"""`pmod` over links and SSH: a run that grows on six emulated nodes, loses one and gets it back."""

from pathlib import Path

import pytest
from emulated_clusters import write_inventory
from emulated_lab import EmulatedLab, millrace
from pmod_growth import AGENDA, NODES, check_changes_of_schedules, check_run, check_steps_and_moves

from controller.emulation.description import description_in

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.timeout(600)]

MACHINE: dict[str, object] = {"cores": 1, "ghz": 3.0, "share_per_core": 0.25, "memory_mb": 512}


def test_schedules_and_moves_are_those_of_the_paper(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path, [MACHINE] * len(NODES), millrace_slots=2)
    try:
        done = millrace("provision", str(inventory))
        assert done.returncode == 0, done.stderr[-3000:]
        description = description_in(tmp_path / "cluster")
        assert description is not None
        lab = EmulatedLab(tmp_path, inventory, description)
        finished = lab.run(lab.agenda("growth", **AGENDA), "--accept-shortfall")
        assert finished.returncode == 0, finished.stderr[-3000:]
        (run,) = lab.records("growth")
        check_run(run)
        (folder,) = (lab.results / "growth" / "latest" / "runs").iterdir()
        check_steps_and_moves(folder)
        check_changes_of_schedules(folder)
    finally:
        millrace("clean", str(inventory))
