"""`python -P -m agents.cpu`: JSON in, JSON out, with nothing but the standard library.

Requested settings are read with messages that name key, value and what was expected.
"""

import ast
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from trees.processors import CPU, acpi_shared, virtual

from agents.cpu.request import CpuRequest
from inventory.errors import InputError

ROOT = Path(__file__).parents[2]

PROGRAM_FILES = (
    *sorted(p.relative_to(ROOT) for p in (ROOT / "agents/cpu").glob("*.py") if p.name != "node_cpus.py"),
    Path("agents/__init__.py"),
    Path("agents/host_files.py"),
    Path("inventory/__init__.py"),
    Path("inventory/atomic_files.py"),
    Path("inventory/errors.py"),
    Path("inventory/foreign.py"),
    Path("inventory/own_files.py"),
)
"""Files that provisioning copies to a host on which nothing is installed."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bare") / "program.zip"
    with zipfile.ZipFile(path, "w") as bundle:
        for file in PROGRAM_FILES:
            bundle.write(ROOT / file, str(file))
    return path


def call(archive: Path, verb: str, request: Any = None) -> tuple[int, Any]:
    """Run a verb from the archive alone: without site packages, environment or the checkout."""
    text = request if isinstance(request, str) else json.dumps(request or {})
    program = f"import sys, runpy; sys.path.insert(0, {str(archive)!r}); sys.argv = ['agents.cpu', *sys.argv[1:]]; "
    command = [sys.executable, "-I", "-S", "-c", program + "runpy.run_module('agents.cpu', run_name='__main__')", verb]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60, cwd="/")
    assert result.stderr == ""
    return result.returncode, json.loads(result.stdout)


def test_nothing_but_the_standard_library_and_itself_is_imported() -> None:
    own = {str(file.with_suffix("")).replace("/", ".").removesuffix(".__init__") for file in PROGRAM_FILES}
    for file in PROGRAM_FILES:
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = {f"{node.module}.{alias.name}" for alias in node.names} & own
                names = [*modules] or [str(node.module)]
            for name in names:
                assert name in own or name.partition(".")[0] in sys.stdlib_module_names, f"{file} imports {name}"


def test_facts_plan_apply_verify_and_restore_on_a_bare_host(archive: Path, tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    status, found = call(archive, "facts", {"root": str(root)})
    assert status == 0
    assert found["facts"]["driver"] == "acpi-cpufreq"
    before = found["before"]
    requested = {"governor": "performance", "turbo": False}
    request = {"root": str(root), "requested": requested, "before": before}

    status, planned = call(archive, "plan", request)
    assert (status, planned["ok"], planned["changed"]) == (0, True, True)
    assert call(archive, "apply", {**request, "check": True}) == (0, planned)
    assert call(archive, "verify", request)[0] == 1

    status, applied = call(archive, "apply", request)
    assert (status, applied["ok"], applied["changed"]) == (0, True, True)
    assert applied["before"] == before
    assert {s["path"]: s["got"] for s in applied["settings"]} == {s["path"]: s["asked"] for s in planned["settings"]}
    assert (root / CPU / "cpufreq/policy0/scaling_governor").read_text() == "performance"
    assert call(archive, "apply", request)[1]["changed"] is False
    status, verified = call(archive, "verify", request)
    assert (status, verified["ok"]) == (0, True)

    assert call(archive, "restore", {**request, "check": True})[1]["changed"] is True
    status, restored = call(archive, "restore", request)
    assert (status, restored["ok"], restored["changed"]) == (0, True, True)
    assert (root / CPU / "cpufreq/policy0/scaling_governor").read_text() == "ondemand"
    assert call(archive, "restore", request)[1]["changed"] is False


def test_an_impossible_request_is_status_3_with_the_possible_values(archive: Path, tmp_path: Path) -> None:
    root = virtual().build(tmp_path)
    before = call(archive, "facts", {"root": str(root)})[1]["before"]
    request = {"root": str(root), "requested": {"governor": "performance", "cores": 9}, "before": before}
    for verb in ("plan", "apply"):
        status, answer = call(archive, verb, request)
        assert status == 3
        assert [refusal["what"] for refusal in answer["refused"]] == ["cores", "governor"]
        assert answer["refused"][0]["possible"] == "1 to 2"
        assert answer["refused"][0]["message"] == "cores: 9: there are 2 physical cores; possible: 1 to 2"


@pytest.mark.parametrize(
    ("verb", "request_", "told"),
    [
        ("aply", {}, "did you mean 'apply'?"),
        ("plan", "{", "request: not JSON"),
        ("plan", "[]", "request: expected a JSON object"),
        ("plan", {"request": {}}, "request: unknown key 'request'; did you mean 'requested'?"),
        ("plan", {"requested": {"cores": 0}}, "requested: cores: got 0, expected a whole number from 1 on"),
        ("plan", {"root": "/no/such/folder"}, "root: '/no/such/folder' is not a folder"),
        ("apply", {"requested": {}}, "before: missing"),
        ("restore", {"before": {"version": 1}}, "before: not the CPU settings of a host"),
    ],
)
def test_a_wrong_request_is_status_2_and_says_what_is_wrong(verb: str, request_: Any, told: str, archive: Path) -> None:
    status, answer = call(archive, verb, request_)
    assert status == 2
    assert told in answer["error"]


def test_restore_without_a_snapshot_and_without_a_journal_has_nothing_to_do(archive: Path, tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    status, answer = call(archive, "restore", {"root": str(root)})
    assert (status, answer["changed"], answer["settings"]) == (0, False, [])
    assert not (root / "run").exists()


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"governer": "x"}, "requested: unknown setting 'governer'; did you mean 'governor'?"),
        ({"cores": 0}, "requested: cores: got 0, expected a whole number from 1 on"),
        ({"cores": 1.5}, "cores: got 1.5"),
        ({"cores": True}, "cores: got True"),
        ({"max_ghz": 2_400_000}, "expected a clock in GHz, above 0 and below 100"),
        ({"min_ghz": 3, "max_ghz": 2}, "min_ghz: got 3, expected at most max_ghz, 2"),
        ({"turbo": "off"}, "turbo: got 'off', expected true or false"),
        ({"governor": "power save"}, "governor: got 'power save'"),
        ({"epp": 256}, "expected a preference's name, or 0 to 255"),
    ],
)
def test_an_invalid_request_is_an_input_error(document: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as fault:
        CpuRequest.from_document(document)
    assert told in str(fault.value)


def test_a_request_survives_json() -> None:
    document = {"cores": 2, "governor": "performance", "max_ghz": 2.4, "turbo": False, "epp": "128"}
    assert CpuRequest.from_document({**document, "smt": None}).to_document() == document
    assert CpuRequest.from_document({"epp": 128}).epp == "128"
