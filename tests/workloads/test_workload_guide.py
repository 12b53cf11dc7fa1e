"""The workload of the page "Add a workload": its answer, and its check."""

import os
import re
from pathlib import Path

import pytest

from campaign.commands.main import run
from workloads.workload import load_workload

GUIDE = Path(__file__).parents[2] / "docs" / "add-a-workload.md"


@pytest.fixture
def lengths(install_workload):
    """Name of the workload of the guide, installed as the guide describes."""
    text = GUIDE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    registered = re.search(r'\[project\.entry-points\."millrace\.workloads"\]\n(\w+) = "[\w.]+:(\w+)"', text)
    assert registered is not None
    name, class_name = registered.groups()
    install_workload(name, code, class_name)
    return name


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_guide_s_workload_gives_its_reference_answer(lengths, simulate, tmp_path, seed):
    workload = load_workload(lengths, {"parallelism": {"tally": 3}})
    answer, reference = simulate(workload, workload.prepare(tmp_path / "inputs"), seed, 400)
    verdict = workload.compare(answer, reference)
    assert verdict.passed, verdict.message
    assert verdict.checked > 5


def test_a_wrong_answer_to_the_guide_s_workload_is_found(lengths, simulate, tmp_path):
    workload = load_workload(lengths, {})
    answer, reference = simulate(workload, workload.prepare(tmp_path / "inputs"), 4, 400)
    (length, lines), *others = answer["lengths"]
    wrong = {"lengths": [(length, lines + 1), *others]}
    assert f"({length},) = ({lines + 1},), the reference has ({lines},)" in workload.compare(wrong, reference).message


@pytest.mark.long
@pytest.mark.loopback
def test_the_guide_s_workload_passes_its_check(lengths, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / lengths) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    status = run(["check", "workload", lengths])
    assert "NOT OK" not in capfd.readouterr().out
    assert status == 0
