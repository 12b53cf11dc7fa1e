"""Determinism of `pipeline-linear`, `pmod` and `er-stream` across processes."""

from pathlib import Path

import pytest
from package_install import millrace

CLUSTER = """
nodes: [{id: n2, slots: 3}, {id: n1, slots: 4, ports: [4, 3, 2, 1]}, {id: n3, slots: 9}, {id: n4, slots: 9}]
existing:
  - {topology: t, node: n1, slot: 2, executors: ["b[1]", "b[0]"]}
  - {topology: other, node: n2, slot: 0, executors: ["x[0]"]}
"""
T = """
id: t
components:
  - {id: a, kind: spout, parallelism: 3}
  - {id: b, kind: bolt, parallelism: 4, inputs: [{from: a}]}
  - {id: c, kind: bolt, parallelism: 2, inputs: [{from: b}, {from: a, grouping: global}]}
"""
U = """
id: u
components: [{id: d, kind: spout, parallelism: 2}, {id: e, kind: bolt, parallelism: 2, inputs: [{from: d}]}]
"""
TRAFFIC = 'edges: [{from: "a[0]", to: "b[3]", tuples_per_s: 0.1}, {from: "b[2]", to: "c[1]", tuples_per_s: 7.3}]'


@pytest.mark.parametrize("scheduler", ["pipeline-linear", "pmod", "er-stream"])
def test_every_process_writes_the_same_bytes(tmp_path: Path, scheduler: str) -> None:
    for name, text in {"c": CLUSTER, "t": T, "u": U, "f": TRAFFIC}.items():
        (tmp_path / f"{name}.yml").write_text(text)
    files = ["--cluster", "c.yml", "--topology", "t.yml", "--topology", "u.yml", "--traffic", "f.yml"]
    outputs: set[str] = set()
    for seed in ("0", "4242"):
        process = millrace(
            "place", *files, "--scheduler", scheduler, "--json", env={"PYTHONHASHSEED": seed}, cwd=tmp_path
        )
        assert process.returncode == 0, process.stderr
        outputs.add("".join(line for line in process.stdout.splitlines() if '"elapsed_s"' not in line))
    assert len(outputs) == 1
