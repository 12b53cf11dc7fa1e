"""An installed third-party package is listed and used like built-in plug-ins."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from package_install import install, millrace

from campaign.commands.main import run
from inventory.errors import InputError

SAMPLE = Path(__file__).parents[1] / "sample_plugin"
TOPOLOGY = "{id: t, workers: 2, components: [{id: a, kind: spout, parallelism: 6}]}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("sample")
    shutil.copytree(SAMPLE, work / "project", ignore=shutil.ignore_patterns("__pycache__"))
    return install(work / "project", work)


@pytest.fixture(scope="module")
def listed(site: Path) -> Callable[[str], tuple[dict[str, Any], str]]:
    """Function that returns the plug-ins of a kind by name, and their table as one line of text."""

    @cache
    def list_plugins(kind: str) -> tuple[dict[str, Any], str]:
        document, table = (millrace("list", kind, *options, path=site) for options in (("--json",), ()))
        assert (document.returncode, table.returncode) == (0, 0), table.stderr
        return {entry["name"]: entry for entry in json.loads(document.stdout)}, " ".join(table.stdout.split())

    return list_plugins


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    (tmp_path / "t.yml").write_text(TOPOLOGY)
    return tmp_path / "t.yml"


@pytest.mark.parametrize(
    ("kind", "name", "summary"),
    [
        ("schedulers", "sample-first-fit", "everything but free slots"),
        ("workloads", "sample-numbers", "adds up the first numbers"),
        ("sensors", "sample-uptime", "how long the machine has been up"),
    ],
)
def test_its_plug_ins_are_listed_beside_built_in_ones(
    listed: Callable[[str], tuple[dict[str, Any], str]],
    kind: str,
    name: str,
    summary: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["list", kind, "--json"]) == 0
    built_in = {entry["name"] for entry in json.loads(capsys.readouterr().out)}
    entries, text = listed(kind)
    assert name not in built_in
    assert built_in < set(entries)
    assert entries[name]["error"] is None
    assert name in text
    assert summary in text


def test_its_scheduler_places_with_checked_parameters(site: Path, topology: Path) -> None:
    arguments = ("place", "--cluster", "loopback", "--topology", topology, "--scheduler", "sample-first-fit", "--json")
    answer = json.loads(millrace(*arguments, "--param", "per_slot=3", path=site).stdout)
    assert answer["params"] == {"per_slot": 3}
    assert [a["slot"] for a in answer["topologies"]["t"]["assignments"]] == [0, 0, 0, 1, 1, 1]
    wrong = millrace(*arguments, "--param", "per_slto=3", path=site)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "did you mean 'per_slot'" in wrong.stderr


def test_a_wrong_placement_is_refused_with_every_fault(site: Path, topology: Path) -> None:
    refused = millrace(
        "place", "--cluster", "loopback", "--topology", topology, "--scheduler", "sample-wrong", path=site
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert all(f"a[{index}]: slot 99 is beyond the 4 slots of 'n1'" in refused.stderr for index in range(6))
    assert "Traceback" not in refused.stderr


SHORT_NOTICE = """\
import scheduler.toolkit.slow_notice
from millrace.__main__ import main

scheduler.toolkit.slow_notice.NOTICE_S = 0.5
main()
"""


def test_an_endless_scheduler_is_reported_and_ended_by_an_interrupt(site: Path, topology: Path) -> None:
    arguments = ("place", "--cluster", "loopback", "--topology", str(topology), "--scheduler", "sample-endless")
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-P", "-c", SHORT_NOTICE, *arguments]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        notice = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert notice == "millrace: the scheduler 'sample-endless' is still deciding, Ctrl-C ends it\n"
    assert (process.returncode, rest.split()) == (130, ["interrupted"])


@pytest.mark.parametrize("place", ["before", "behind"])
def test_debug_before_or_after_the_command_shows_a_traceback(
    topology: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["place", "--cluster", "loopback", "--topology", str(topology), "--scheduler", "evn"]
    at = {"before": 0, "behind": len(arguments)}[place]
    assert run(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(InputError):
        run([*arguments[:at], "--debug", *arguments[at:]])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sample-absent", "No module named 'sample_plugin_that_is_not_there'"),
        ("sample-misnamed", "calls itself 'sample-first-fit'"),
        ("sample-nothing", "has no paper, needs, Params, place"),
    ],
)
def test_a_broken_plug_in_has_a_reason_and_hides_no_other(
    site: Path, listed: Callable[[str], tuple[dict[str, Any], str]], topology: Path, name: str, reason: str
) -> None:
    entries, text = listed("schedulers")
    assert reason in entries[name]["error"]
    assert reason in text
    refused = millrace("place", "--cluster", "loopback", "--topology", topology, "--scheduler", name, path=site)
    assert refused.returncode == 3
    assert reason in refused.stderr


def test_its_workload_gives_its_reference_answer(site: Path) -> None:
    script = """
from workloads.operators import Batch, Context
from workloads.workload import load_workload
workload = load_workload("sample-numbers", {"limit": 10})
spouts = [workload.operator("numbers") for _ in range(2)]
total = workload.operator("total")
for index, spout in enumerate(spouts):
    spout.open(Context("numbers", index, 2, {"limit": 10}))
rows = [row for spout in spouts for row in spout.next_batch(100)]
total.process(Batch("numbers", "default", rows))
verdict = workload.compare({"total": list(total.answer())}, workload.reference([5, 5], []))
print(verdict.passed, verdict.checked, total.sum)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "1", "45"]
