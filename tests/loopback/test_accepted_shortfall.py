"""A campaign on links with less than was asked for: refused, or marked in all its records when that is accepted."""

import json
from typing import Any

import pytest

from analysis.records.campaign import load_campaign

pytestmark = pytest.mark.loopback

SHORT = """\
import click
from analysis.records.conditions import Calibrated
from controller.emulation.calibration import shortfall_of
from controller.nodes.backend import Calibration, LoopbackBackend
from millrace.__main__ import main
from campaign.commands import run

ROWS = (Calibrated("n1", "n2", "link", 100.0, 49.6, "Mbit/s"),)

async def calibrate(self):
    return Calibration(ROWS, shortfall_of(ROWS))

LoopbackBackend.calibrate = calibrate
run.run_command.callback = click.pass_obj(lambda settings, no_report, **given: run.run_campaign(settings, **given)[0])
main()
"""
"""`millrace` without reports, where a link of 100 Mbit/s is measured to have 49.6."""

FIGURE = "n1 to n2: link 49.6 of 100 Mbit/s"


def test_an_accepted_shortfall_is_in_the_record_of_the_campaign_and_makes_its_runs_suspect(workspace: Any) -> None:
    agenda = workspace.agenda(schedulers=["even"])
    refused = workspace.run("run", agenda, program=SHORT)
    assert refused.status == 1, refused
    assert FIGURE in refused.err
    assert "run anyway with --accept-shortfall" in refused.err
    record = workspace.campaign / "campaign.json"
    assert json.loads(record.read_text())["accepts_shortfall"] is False

    accepted = workspace.run("run", "--resume", str(workspace.campaign), "--accept-shortfall", program=SHORT)
    assert accepted.status == 0, accepted
    assert json.loads(record.read_text())["accepts_shortfall"] is True
    (run,) = workspace.results().values()
    doubt = f"calibration below the requested capacity: {FIGURE} (--accept-shortfall)"
    assert workspace.suspect_reasons(run) == [doubt]
    (seen,) = load_campaign(workspace.campaign).runs
    assert (seen.counts, doubt in seen.suspect) == (True, True)
