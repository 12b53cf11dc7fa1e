"""Configuration of all tests: markers, order, distribution to processes, and real data."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# A busy machine must not fail a test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("untimed", UNTIMED, max_examples=25)
settings.register_profile("repeatable", UNTIMED, max_examples=25, derandomize=True)
settings.register_profile("quick", UNTIMED, max_examples=10)
settings.register_profile("deep", UNTIMED, max_examples=2000)
settings.load_profile("untimed")

ROOT = Path(__file__).parents[1]


def _loopback() -> str | None:
    import socket

    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.6", 0))
    except OSError as fault:
        return f"127.0.0.6 cannot be bound: {fault}"
    return None


def _root() -> str | None:
    return None if os.geteuid() == 0 else "not root"


def _spark() -> str | None:
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        return "pyspark is not installed"
    from analysis.tables.java import find_java

    return None if find_java() else "no Java >= 17 for Spark"


def _profiler() -> str | None:
    import subprocess
    import sys

    from agents.agent.worker_reports import find_py_spy

    program = find_py_spy()
    if program is None:
        return "py-spy is not installed"
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as child:
        command = [program, "dump", "--nonblocking", "--pid", str(child.pid)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return "py-spy may not read other processes" if "ermission" in result.stderr else None


def _browser() -> str | None:
    return None if shutil.which("chromium") else "no chromium on this machine"


def _sshd() -> str | None:
    from sshd import PROGRAM

    return _loopback() if PROGRAM else "no sshd on this machine"


def _emulation() -> str | None:
    from controller.emulation.cluster import emulation_unsupported_reason

    return emulation_unsupported_reason()


def _vm() -> str | None:
    from guest_packages import unsupported_reason

    return unsupported_reason()


def _engines() -> str | None:
    from engines.installation import engines_unsupported_reason

    return engines_unsupported_reason()


PROBES: dict[str, Callable[[], str | None]] = {
    "loopback": _loopback,
    "root": _root,
    "sshd": _sshd,
    "emulation": _emulation,
    "spark": _spark,
    "browser": _browser,
    "profiler": _profiler,
    "vm": _vm,
    "storm": _engines,
    "flink": _engines,
}
"""Marker -> probe; a probe returns why tests with the marker cannot run on this machine, or None."""

ALONE = ("soak", "pipelines", "emulated", "vm", "long", "storm", "flink")
"""Markers of tests that run only when asked for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of scenarios and of comparisons with other engines."""
    group = parser.getgroup("millrace")
    group.addoption("--scenarios", type=int, default=40, metavar="N", help="play N scenarios of kills and moves")
    group.addoption("--oracle", type=int, default=100, metavar="N", help="compare N rounds per scheduler with engines")
    group.addoption(
        "--seed", type=int, metavar="S", help="play the scenarios of seed S (default: another one each time)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long tests unless their marker is selected; skip tests that cannot run here, with the probe's reason.

    MILLRACE_REQUIRE names markers that must not be skipped.
    """
    unselected = {mark for mark in ALONE if mark not in config.getoption("markexpr")}
    marks = {item: {mark.name for mark in item.iter_markers()} for item in items}
    config.hook.pytest_deselected(items=[item for item in items if marks[item] & unselected])
    items[:] = [item for item in items if not marks[item] & unselected]
    required = set(filter(None, os.environ.get("MILLRACE_REQUIRE", "").split(",")))
    reasons: dict[str, str | None] = {}
    for item in items:
        for marker, probe in PROBES.items():
            if marker not in marks[item]:
                continue
            if marker not in reasons:
                reasons[marker] = probe()
            reason = reasons[marker]
            if reason is None:
                continue
            if marker in required:
                pytest.exit(f"tests marked {marker} must run here, but: {reason}", returncode=3)
            item.add_marker(pytest.mark.skip(reason=reason))
    items[:] = _interleaved(items, marks)


def _interleaved(items: Sequence[pytest.Item], marks: Mapping[pytest.Item, Set[str]]) -> list[pytest.Item]:
    """Return the tests in an order that keeps cores busy: computing tests are spread evenly among waiting ones.

    Chains of tests come first among the waiting ones, and long tests among the others: none is left over at the end.
    """
    short = {item: not marks[item] & {"slow", "long", "pipelines"} for item in items}
    processes = {"loopback", "emulation", "sshd", "spark"}
    waiting = [item for item in items if item.path.name in TOGETHER or marks[item] & processes]
    waiting.sort(key=lambda item: (item.path.name not in TOGETHER, short[item]))
    chosen = set(waiting)
    computing = sorted((item for item in items if item not in chosen), key=short.__getitem__)
    places = [(at + 1) / (len(waiting) + 1) for at in range(len(waiting))]
    places += [(at + 1) / (len(computing) + 1) for at in range(len(computing))]
    return [item for _, item in sorted(zip(places, [*waiting, *computing], strict=True), key=lambda pair: pair[0])]


TOGETHER = {
    "test_campaign_energy.py": "a campaign with meters",
    "test_bundled_figures.py": "report of the small campaign",
    "test_report_energy.py": "report of the small campaign",
    "test_report_page.py": "report of the small campaign",
    "test_report_tables.py": "report of the small campaign",
    "test_report_browser.py": "report of the small campaign",
    "test_report_job.py": "report of the small campaign",
    "test_pipeline_debs2014.py": "Spark in the test's process",
    "test_pipelines_queries.py": "Spark in the test's process",
    "test_pipelines_rows.py": "Spark in the test's process",
    "test_readers_agree.py": "Spark in the test's process",
    "test_base_role.py": "archive of the environment of nodes",
    "test_changing_schedules.py": "runs whose schedules change",
    "test_elastic_demand.py": "runs whose rate doubles",
    "test_elastic_pmod.py": "a run that grows and loses a node",
    "test_emulated_node.py": "emulated cluster",
    "test_observed_run.py": "runs that are observed",
    "test_online_campaigns.py": "runs that are revised",
    "test_online_faults.py": "runs of faulty schedulers",
    "test_online_load_step.py": "a run with a load step",
    "test_online_nodes.py": "runs whose nodes come and go",
    "test_scaled_campaigns.py": "campaigns whose components are scaled",
    "test_ssh_campaign.py": "campaign over SSH",
    "test_ssh_connection.py": "SSH servers for connections",
    "test_ssh_files.py": "SSH servers for files",
    "test_top.py": "campaign that is watched",
    "test_emulated_network.py": "emulated networks",
    "test_storm_oracle.py": "the compiled driver",
    "test_flink_oracle.py": "the compiled driver",
    "test_hostile_names.py": "SSH server for names",
}
"""File -> expensive fixture that its tests share. These files run in one xdist worker each, all other tests in any."""


class SharedFixtures(LoadScopeScheduling):
    """Distribution of tests to xdist workers by `TOGETHER`.

    The controlling process knows tests by their identifiers only, not by markers.
    """

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER.get(Path(nodeid.partition("::")[0]).name, nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return two more than this machine's cores, because tests wait for half of their time; at most 6."""
    return min(6, len(os.sched_getaffinity(0)) + 2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedFixtures | None:
    """Distribute tests by what they share, with `--dist loadscope`."""
    return SharedFixtures(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture(scope="session", autouse=True)
def _own_state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Separate state files and locks from campaigns of this machine, and from tests of parallel processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data extracts beside the checkout; absent on a user's machine."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        if "shared_data" in os.environ.get("MILLRACE_REQUIRE", ""):
            pytest.fail("the real extracts must be here")
        pytest.skip("the real data extracts are not beside this checkout")
    return folder
