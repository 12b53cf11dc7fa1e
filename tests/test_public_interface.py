"""The package `millrace`: exported names, their documentation, and foreign packages that hide Millrace's own."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from package_install import install

import millrace
from inventory.errors import UnfitError
from inventory.plugins import OWN, load_plugin, plugins
from millrace.__main__ import OWN as CHECKED_AT_START

ROOT = Path(__file__).parents[1]
PROGRAM = Path(sys.executable).with_name("millrace")

NAMES = """
Answer Batch Bolt Change ClassAffinity Classes Cluster ColumnBatch ColumnBolt ColumnSpout Combining
CommunicationSchedule Component Constraints Context Cost Derived Digest Edge Emitted EventTimeWindows Executor
ExistingWorker Expected FreeSlots Host Input InputError IntervalJoin KeyedState LineSpout Loads Meta Move NOTHING
Needs Network NoParams Node NodePower Observation OnlineScheduler Operator ParameterError Placement Plan PreparedInput
Problem
RateAffinity RecordedSpout ResultTable Results Revision Rhythm Row RowMultiset RunRecord RunSummary Schedule Scheduler
Seekable Sensor Slot Spout TextParams Topology TraceRow Traffic TupleBolt UnfitError Verdict Workload ackers assigned
classes_of concluded cost digest_of distinct filled interleaved nearest per_tuple power_index prepare_text read_records
rows_differ running times_emitted waiting
"""
"""Names that plug-ins rely on. A removed or changed name breaks them and belongs in the changelog."""

EXPORTED = set(NAMES.split())


def test_the_exported_names_do_not_change_by_accident() -> None:
    assert set(millrace.__all__) == EXPORTED
    assert set(dir(millrace)) == EXPORTED
    documented = [name for names in millrace.EXPORTS.values() for name in names]
    assert sorted(documented) == sorted(millrace.__all__)
    assert all(re.fullmatch(r"[A-Z].*\.", line) for names in millrace.EXPORTS.values() for line in names.values())


def test_loaded_names_are_those_that_type_checkers_see() -> None:
    tree = ast.parse((ROOT / "millrace" / "__init__.py").read_text())
    typed = {
        alias.asname or alias.name: (node.module, alias.name)
        for branch in tree.body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed.keys() == EXPORTED
    for module, names in millrace.EXPORTS.items():
        for name in names:
            assert typed[name][0] == module
            assert getattr(millrace, name) is getattr(import_module(module), typed[name][1])


def test_type_checkers_of_plug_ins_read_the_types_behind_the_names() -> None:
    # Without py.typed in the package of a name, its type would be Any.
    assert [name for name in sorted(OWN) if not (ROOT / name / "py.typed").is_file()] == []


def test_a_name_that_is_not_exported_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'millrace' has no attribute 'Planet'"):
        _ = millrace.Planet  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'Planet' from 'millrace'"):
        from millrace import Planet  # type: ignore[attr-defined]  # noqa: F401


def test_the_page_lists_every_name_with_its_module() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| (`.+) \|$", page, re.MULTILINE)
    listed = [(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)]
    assert sorted(listed) == sorted((module, name) for module, names in millrace.EXPORTS.items() for name in names)
    assert (
        set(re.findall(r"`(\w+)`", page.split("## Names of packages")[1].split(" are Millrace's packages")[0])) == OWN
    )


def test_importing_millrace_loads_nothing_else() -> None:
    code = (
        "import sys; old = set(sys.modules); import millrace; print(*{m.split('.')[0] for m in set(sys.modules) - old})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"millrace", "importlib", "warnings"}


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "docs").glob("add-a-*.md")), *sorted((ROOT / "tests/sample_plugin").glob("*.py"))]
)
def test_guides_and_the_sample_package_import_only_from_millrace(path: Path) -> None:
    text = path.read_text()
    imported = {name for name in re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE) if name in OWN}
    assert imported <= {"millrace"}


# --- packages of the same name -----------------------------------------------------------------------------------


def test_all_lists_of_own_packages_agree_with_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages = set(settings["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert (
        packages
        == OWN
        == set(settings["mypy"]["files"]) - {"benchmarks"}
        == set(settings["importlinter"]["root_packages"])
    )
    assert set(CHECKED_AT_START) == OWN - {"millrace"}
    wheels = (ROOT / "ansible/roles/base/library/millrace_wheels.py").read_text()
    assert set(ast.literal_eval(re.findall(r"^PACKAGES = (\(.*?\))$", wheels, re.MULTILINE | re.DOTALL)[0])) == packages


def _listed(path: Path | str, cwd: Path, *program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [*(program or (str(PROGRAM),)), "list", "schedulers"]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", ["scheduler", "workloads", "agents", "campaign", "inventory"])
def test_a_package_that_hides_one_of_ours_is_refused_before_anything_breaks(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise RuntimeError('loaded')\n")
    refused = _listed(tmp_path, tmp_path)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.startswith(f"millrace: {tmp_path / name} hides Millrace's own package {name!r} in {ROOT}: ")
    assert "PYTHONPATH" in refused.stderr


def test_a_module_that_hides_one_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scheduler.py").write_text("")
    refused = _listed(".", tmp_path)
    assert refused.returncode == 3
    assert f"{tmp_path / 'scheduler.py'} hides Millrace's own package 'scheduler'" in refused.stderr


def test_a_folder_of_such_a_name_in_the_current_directory_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "__init__.py").write_text("raise RuntimeError('loaded')\n")
    done = _listed("", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    as_module = _listed("", tmp_path, sys.executable, "-m", "millrace")
    assert as_module.returncode == 3
    assert "hides Millrace's own package 'scheduler'" in as_module.stderr


@pytest.fixture
def shadowing(tmp_path: Path) -> Path:
    """Folder with an installed third-party distribution that has a top-level package `scheduler`."""
    project = tmp_path / "project"
    (project / "scheduler").mkdir(parents=True)
    (project / "scheduler" / "mine.py").write_text("class Mine:\n    name = 'mine'\n")
    (project / "helpers.py").write_text("class Other:\n    name = 'other'\n")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "shadowing"\nversion = "1"\n'
        '[project.entry-points."millrace.schedulers"]\nmine = "scheduler.mine:Mine"\nother = "helpers:Other"\n'
        '[tool.hatch.build.targets.wheel]\ninclude = ["scheduler", "helpers.py"]\n'
    )
    return install(project, tmp_path)


REASON = "its distribution has a top-level package 'scheduler', the name of one of Millrace's own; rename that package"


def test_a_plug_in_whose_distribution_uses_one_of_our_names_is_refused_with_the_reason(
    shadowing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(shadowing)
    plugins.cache_clear()
    try:
        for name in ("mine", "other"):
            with pytest.raises(UnfitError) as refused:
                load_plugin("millrace.schedulers", name)
            assert REASON in str(refused.value)
        assert load_plugin("millrace.schedulers", "even").name == "even"
    finally:
        plugins.cache_clear()


def test_such_a_plug_in_is_listed_with_the_reason_until_it_hides_our_package(shadowing: Path, tmp_path: Path) -> None:
    # Without an __init__.py Python prefers our package to the folder of that name.
    listed = _listed(shadowing, tmp_path)
    assert listed.returncode == 0
    assert REASON in " ".join(listed.stdout.split())
    assert "top-storm" in listed.stdout
    (shadowing / "scheduler" / "__init__.py").write_text("")
    refused = _listed(shadowing, tmp_path)
    assert refused.returncode == 3
    assert f"{shadowing / 'scheduler'} (installed by shadowing) hides Millrace's own package" in refused.stderr
