"""Guides: the example sensor runs in a real agent; messages match the code."""

import re
import time
from pathlib import Path
from typing import get_args

import pytest

from agents.protocol import Command, Report

GUIDE = Path(__file__).parents[2] / "docs" / "add-a-sensor.md"


@pytest.mark.loopback
def test_the_guides_sensor_writes_rows_in_a_real_agent(start_agent, wordcount, tmp_path: Path):
    text = GUIDE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    registered = re.search(r'\[project\.entry-points\."millrace\.sensors"\]\n(\w+) = "(\w+):(\w+)"', text)
    assert registered is not None
    name, module, kind = registered.groups()
    site = tmp_path / "site"
    information = site / "load_sensor-1.0.dist-info"
    information.mkdir(parents=True)
    (site / f"{module}.py").write_text(code)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: load-sensor\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[millrace.sensors]\n{name} = {module}:{kind}\n")

    agent = start_agent(env={"PYTHONPATH": str(site)})
    agent.welcome()
    run = wordcount(agent, slots=1)
    before = time.monotonic_ns()
    run.start(sensors=[name])
    run.finish()
    events = run.traces(tmp_path / "traces")["event"].to_pylist()
    loads = [event for event in events if event["kind"] == "load_average"]
    assert loads
    assert all(event["value"] >= 0 and event["subject"] == "n1" for event in loads)
    assert all(before < event["t_ns"] < time.monotonic_ns() for event in loads)
    assert {"sensor_absent", "sensor_failed"}.isdisjoint(event["kind"] for event in events)


def test_the_guide_to_the_protocol_names_every_message():
    text = (GUIDE.parent / "control-protocol.md").read_text()
    tags = {member.__struct_config__.tag for member in get_args(Command) + get_args(Report)}
    assert tags <= set(re.findall(r"`(\w+)`", text))
