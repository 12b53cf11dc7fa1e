"""The command line starts fast: heavy modules are imported only when needed; and its list of commands is complete."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from campaign.commands.main import millrace

HEAVY = {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "matplotlib", "jinja2", "rich", "asyncio"}

PROGRAM = """
import json, sys
from campaign.commands.main import run
status = run(json.loads(sys.argv[1]))
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


@pytest.mark.parametrize("scheduler", ["even", "top-storm"])
def test_place_loads_nothing_heavy(scheduler: str, tmp_path: Path) -> None:
    topology = tmp_path / "t.yml"
    topology.write_text(
        "id: t\ncomponents: [{id: a, kind: spout}, {id: b, kind: bolt, parallelism: 2, inputs: [{from: a}]}]\n"
    )
    command = ["place", "--cluster", "loopback", "--topology", str(topology), "--scheduler", scheduler, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(command)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["topologies"]["t"]["status"] == "placed"
    status, modules = json.loads(done.stderr.splitlines()[-1])
    assert status == 0
    assert HEAVY & set(modules) == set()


def test_the_list_of_commands_at_80_columns_cuts_no_summary() -> None:
    shown = CliRunner().invoke(millrace, ["--help"], terminal_width=80).output
    commands = shown.partition("Commands:")[2].splitlines()
    assert len(commands) > 10
    assert [line for line in commands if line.endswith("...")] == []
