"""What all tests share: probes behind the markers, and where real data lies."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

UNTIMED = settings(deadline=None)  # a busy machine fails no test
settings.register_profile("untimed", UNTIMED)
settings.register_profile("repeatable", UNTIMED, derandomize=True)
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
    from analysis.java import find_java

    return None if find_java() else "no Java >= 17 for Spark"


def _profiler() -> str | None:
    import subprocess
    import sys

    from agents.agent.profiling import find_py_spy

    program = find_py_spy()
    if program is None:
        return "py-spy is not installed"
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as child:
        command = [program, "dump", "--nonblocking", "--pid", str(child.pid)]
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return "py-spy may not read other processes" if "ermission" in said.stderr else None


def _browser() -> str | None:
    return None if shutil.which("chromium") else "no chromium on this machine"


def _sshd() -> str | None:
    from sshd import PROGRAM

    return _loopback() if PROGRAM else "no sshd on this machine"


def _emulation() -> str | None:
    from controller.emulation.cluster import unsupported_reason

    return unsupported_reason()


def _vm() -> str | None:
    from guest_packages import why_not

    return why_not()


PROBES: dict[str, Callable[[], str | None]] = {
    "loopback": _loopback,
    "root": _root,
    "sshd": _sshd,
    "emulation": _emulation,
    "spark": _spark,
    "browser": _browser,
    "profiler": _profiler,
    "vm": _vm,
}
"""Marker -> probe; a probe says why tests with the marker cannot run here, or None."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many scenarios of kills and moves to play, and which."""
    group = parser.getgroup("millrace")
    group.addoption("--scenarios", type=int, default=200, metavar="N", help="play N scenarios of kills and moves")
    group.addoption(
        "--seed", type=int, metavar="S", help="play the scenarios of seed S (default: another one each time)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long unless it is asked for. Skip what cannot run here, with the probe's reason.

    MILLRACE_REQUIRE names markers that must not be skipped.
    """
    for long in ("soak", "pipelines", "emulated", "vm", "long"):
        if long not in config.getoption("markexpr"):
            asked = [item for item in items if item.get_closest_marker(long) is None]
            config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(long) is not None])
            items[:] = asked
    required = set(filter(None, os.environ.get("MILLRACE_REQUIRE", "").split(",")))
    answers: dict[str, str | None] = {}
    for item in items:
        for marker, probe in PROBES.items():
            if item.get_closest_marker(marker) is None:
                continue
            if marker not in answers:
                answers[marker] = probe()
            reason = answers[marker]
            if reason is None:
                continue
            if marker in required:
                pytest.exit(f"tests marked {marker} must run here, but: {reason}", returncode=3)
            item.add_marker(pytest.mark.skip(reason=reason))
    for item in items:
        # Side by side, files stay whole: their fixtures are dear. What mostly waits begins first.
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    items.sort(key=lambda item: item.get_closest_marker("loopback") is None)


@pytest.fixture(scope="session", autouse=True)
def _own_state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep state files and locks apart from this machine's campaigns, and from tests of parallel processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real extracts beside the checkout; absent on a user's machine."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        if "shared_data" in os.environ.get("MILLRACE_REQUIRE", ""):
            pytest.fail("the real extracts must be here")
        pytest.skip("the real data extracts are not beside this checkout")
    return folder
