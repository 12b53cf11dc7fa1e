"""`./run` and its parts: usage, a repeated set-up, incomplete installations, and the program of `./run check`."""

import os
import re
import subprocess
import sys
import venv
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[1]
NOTES = ROOT / ".venv" / ".millrace"
WHOLE = ROOT / "requirements" / "whole.py"


def _run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "run"), *arguments], cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("script", ["run", ".ci/run", "requirements/compile.sh"])
def test_scripts_can_be_started(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


def test_help_shows_every_command_and_examples(tmp_path: Path) -> None:
    done = _run("--help", cwd=tmp_path)
    assert done.returncode == 0
    for line in ("  demo ", "  check ", "  test ", "  docs ", "  setup ", "./run demo", "./run test"):
        assert line in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [(), ("demmo",), ("setup", "now")])
def test_a_wrong_command_is_the_users_error_and_starts_nothing(arguments: tuple[str, ...]) -> None:
    done = _run(*arguments)
    assert done.returncode == 2
    assert "Usage: ./run COMMAND" in done.stderr
    assert "setting up" not in done.stderr


def test_a_second_setup_does_nothing(tmp_path: Path) -> None:
    if Path(sys.prefix) != ROOT / ".venv" or not (NOTES / "dev").is_file():
        pytest.skip("these tests run in an environment that ./run has not made")
    before = {path: path.stat().st_mtime_ns for path in NOTES.iterdir()}
    done = _run("setup", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert {path: path.stat().st_mtime_ns for path in NOTES.iterdir()} == before


@pytest.fixture
def check() -> ModuleType:
    """Module of `./run check`."""
    spec = spec_from_file_location("check", ROOT / ".ci" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_check_goes_on_after_a_failing_step_and_then_fails(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    python = (sys.executable, "-c")
    git = "import os, sys; sys.exit('GIT_INDEX_FILE' in os.environ)"
    monkeypatch.setenv("GIT_INDEX_FILE", "of-a-commit-under-way")
    bad = (*python, "print('what is wrong'); raise SystemExit(7)")
    monkeypatch.setattr(check, "STEPS", {"good": (*python, "print('quiet')"), "bad": bad})
    monkeypatch.setattr(check, "TESTS", {"last": (*python, git)})
    assert check.main() == 1
    output = re.sub(r"\(\d+\.\d s\)", "(time)", capfd.readouterr().out)
    assert output.splitlines() == [
        "[1/3] good ... ok (time)",
        "[2/3] bad ... failed (time)",
        "what is wrong",
        "[3/3] last ... ok (time)",
        "FAILED: bad",
    ]
    monkeypatch.setattr(check, "STEPS", {"good": (*python, "")})
    monkeypatch.setattr(check, "TESTS", {"bad": bad})
    assert check.main(tests=False) == 0
    assert capfd.readouterr().out.endswith("all checks passed\n")


def test_quick_tests_exist_and_hook_and_ci_call_check(check: ModuleType) -> None:
    assert [path for path in check.quick_tests() if not (ROOT / path).is_file()] == []
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert (local["repo"], [hook["entry"] for hook in local["hooks"]]) == ("local", ["./run check"])
    called = (ROOT / ".ci" / "run").read_text()
    assert "part ./run check --no-tests" in called
    assert "part ./run docs\n" in called


def test_tests_with_shared_expensive_fixtures_run_in_one_process(request: pytest.FixtureRequest) -> None:
    plugins = request.config.pluginmanager.list_name_plugin()
    (distribution,) = (plugin for name, plugin in plugins if Path(name) == ROOT / "tests" / "conftest.py")
    files = {path.name: path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    assert distribution.TOGETHER.keys() <= files.keys()
    shared = "(" + "shared_workspace:"
    campaigns = {name for name, path in files.items() if shared in (ROOT / path).read_text()}
    assert campaigns
    assert campaigns <= distribution.TOGETHER.keys()

    def scope(nodeid: str) -> str:
        found: str = distribution.SharedFixtures._split_scope(None, nodeid)
        return found

    report = {scope(f"{files[name]}::test_it[a@b]") for name in ("test_report_page.py", "test_report_tables.py")}
    assert len(report) == 1
    alone = "tests/agents/test_codec.py::test_it[tests/analysis/test_report_page.py]"
    assert scope(alone) == alone


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Environment with one small package, as after an installation."""
    venv.create(tmp_path / "env", symlinks=True)
    site = next((tmp_path / "env" / "lib").glob("python3*")) / "site-packages"
    info = site / "sample-1.0.dist-info"
    info.mkdir()
    (site / "sample.py").write_text("answer = 42\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
    rows = ["sample.py,,12", "sample-1.0.dist-info/METADATA,,", "sample-1.0.dist-info/RECORD,,", "sample.pyc,,"]
    (info / "RECORD").write_text("\n".join(rows) + "\n")
    return tmp_path / "env"


def _check_whole(environment: Path) -> subprocess.CompletedProcess[str]:
    python = environment / "bin" / "python"
    return subprocess.run([str(python), "-I", str(WHOLE)], capture_output=True, text=True, check=False)


def test_a_complete_environment_is_accepted(environment: Path) -> None:
    done = _check_whole(environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("damage", ["a file is gone", "a file is cut short", "no record"])
def test_an_incomplete_package_is_found(environment: Path, damage: str) -> None:
    site = next((environment / "lib").glob("python3*")) / "site-packages"
    if damage == "a file is gone":
        (site / "sample.py").unlink()
    elif damage == "a file is cut short":
        (site / "sample.py").write_text("answer")
    else:
        (site / "sample-1.0.dist-info" / "RECORD").unlink()
    done = _check_whole(environment)
    assert done.returncode == 1
    assert done.stderr.strip() == "incomplete: sample"
