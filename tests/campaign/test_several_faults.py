"""All faults of an agenda are told at once, each with file, line, value and the nearest choice."""

from pathlib import Path

import pytest

from campaign.commands.main import run

NAMES = """name: c
workloads:
  - {name: wordcuont, rate: {kind: max}}
  - {name: exclamation, rate: {kind: max}}
schedulers: [evne, top-storm]
sensors: [cpu, memry]
baseline: top-strom
"""

VALUES = """name: c
inventory: loopback
workloads:
  - {name: wordcount, params: {parallelsim: {}}, rate: {kind: max}}
  - {name: exclamation, rate: {kind: max}}
schedulers:
  - {name: top-storm, params: {alfa: 1}}
  - t-storm
  - {name: r-storm, params: {variant: paper}}
engine: storm
acks: true
"""


@pytest.mark.parametrize(
    ("agenda", "words"),
    [
        (
            NAMES,
            [
                ":3: workloads[0].name: unknown workload 'wordcuont'; did you mean 'wordcount'?",
                ":5: schedulers[0]: unknown scheduler 'evne'; did you mean 'even'?",
                ":6: sensors[1]: unknown sensor 'memry'; did you mean 'memory'?",
                ":7: baseline: 'top-strom' is none of the agenda's schedulers; did you mean 'top-storm'?",
            ],
        ),
        (
            VALUES,
            [
                ":4: workloads[0].params.parallelsim: unknown parameter 'parallelsim'; did you mean 'parallelism'?",
                ":7: schedulers[0].params.alfa: unknown parameter 'alfa'; did you mean 'alpha'?",
                ":9: schedulers[2].params.variant: ",
            ],
        ),
    ],
)
def test_all_faults_are_told_at_once(
    agenda: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(agenda)
    assert run(["run", str(tmp_path / "a.yaml"), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert [each for each in words if f"a.yaml{each}" not in error] == []
    assert error.startswith("millrace: ")


def test_a_single_fault_is_told_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("name: c\nworkloads: [{name: wordcount, rate: {kind: max}}]\nschedulers: [evne]\n")
    assert run(["run", str(tmp_path / "a.yaml"), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert error == f"millrace: {tmp_path}/a.yaml:3: schedulers[0]: unknown scheduler 'evne'; did you mean 'even'?\n"
