"""Rules of the repository that no linter checks: lock files, addresses, paths, file sizes, entry points, layers."""

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = SETTINGS["project"]
BASE = PROJECT["dependencies"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKS = ("build", "node", "controller", "dev", "docs", "java")

MOST_LINES = 600
MAY_BE_LONGER = re.compile(
    r"^(LICENSE|tests/kept_results/.*|requirements/.*\.txt|docs/reference/cli\.md|docs/schemas/.*\.json|(docs|benchmarks)/.*\.svg)$"
)


LAYERS: list[list[str]] = [
    contract["layers"] for contract in SETTINGS["tool"]["importlinter"]["contracts"] if contract["type"] == "layers"
]
ROOT_PACKAGES = tuple(SETTINGS["tool"]["importlinter"]["root_packages"])


def _locked(name: str) -> dict[str, list[tuple[Requirement, int]]]:
    """Return package -> its pins in a lock file, each with its number of hashes; one pin per Python if they differ."""
    pins: dict[str, list[tuple[Requirement, int]]] = {}
    text = (REQUIREMENTS / f"{name}.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            pin, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
            found = Requirement(pin)
            pins.setdefault(canonicalize_name(found.name), []).append((found, len(hashes)))
    return pins


def _inputs(name: str) -> list[str]:
    lines = (REQUIREMENTS / f"{name}.in").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


DIRECT_DEPENDENCIES = {
    "build": _inputs("build"),
    "java": _inputs("java"),
    "node": BASE,
    "controller": [*BASE, *EXTRAS["controller"]],
    "dev": [*BASE, *EXTRAS["controller"], *EXTRAS["dev"]],
    "docs": [*BASE, *EXTRAS["controller"], *EXTRAS["docs"]],
}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_direct_dependency_is_pinned_to_a_version_that_is_allowed(lock: str) -> None:
    pins = _locked(lock)
    for wanted in map(Requirement, DIRECT_DEPENDENCIES[lock]):
        found = pins.get(canonicalize_name(wanted.name))
        assert found, f"{wanted} is not in requirements/{lock}.txt; run requirements/compile.sh"
        for pin, _ in found:
            version = str(pin.specifier).removeprefix("==")
            assert wanted.specifier.contains(version), f"{pin} does not fit {wanted}; run requirements/compile.sh"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_is_exact_and_has_hashes_and_no_address(lock: str) -> None:
    text = (REQUIREMENTS / f"{lock}.txt").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash)", text, re.MULTILINE), "an option has slipped into the lock file"
    for pin, hashes in (pin for pins in _locked(lock).values() for pin in pins):
        assert str(pin.specifier).startswith("=="), pin
        assert hashes, f"{pin} has no hash"


@pytest.mark.parametrize(("smaller", "larger"), [("node", "controller"), ("controller", "dev"), ("controller", "docs")])
def test_a_larger_lock_has_all_pins_of_the_smaller_one(smaller: str, larger: str) -> None:
    few, many = (
        # The larger lock may need a package on more platforms than the smaller one.
        {name: {(str(pin.specifier), hashes) for pin, hashes in pins} for name, pins in _locked(lock).items()}
        for lock in (smaller, larger)
    )
    assert {name: pins for name, pins in many.items() if name in few} == few


@pytest.mark.parametrize(("first", "second"), [("build", "dev"), ("build", "docs"), ("dev", "docs")])
def test_locks_for_one_environment_agree_on_versions(first: str, second: str) -> None:
    left, right = _locked(first), _locked(second)
    shared = left.keys() & right.keys()
    first_pins, second_pins = ({name: pins[name][0][0].specifier for name in shared} for pins in (left, right))
    assert first_pins == second_pins


@pytest.fixture(scope="module")
def tracked() -> dict[str, str]:
    """Text of every file under version control, by path."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    texts = {}
    for name in filter(None, listed.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            texts[name] = content.decode()
    return texts


def _hits(tracked: dict[str, str], pattern: str) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in tracked.items()
        if re.search(pattern, text)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_no_file_names_a_package_registry(tracked: dict[str, str]) -> None:
    # The pattern does not match itself.
    assert (
        _hits(tracked, r"(?i)py[p]i\.org|python[h]osted|index[-_]u[r]l|find[-_]l[i]nks|repo1\.mav[e]n|deb\.deb[i]an")
        == []
    )


def test_no_file_names_a_path_of_the_machine_where_it_was_written(tracked: dict[str, str]) -> None:
    assert _hits(tracked, r"(?<![\w.~$}{)/-])/(?:work|root|home|Users|opt(?!/millrace))/[\w.]") == []


def test_no_file_is_too_long(tracked: dict[str, str]) -> None:
    lengths = {name: text.count("\n") for name, text in tracked.items() if not MAY_BE_LONGER.match(name)}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
    assert lengths.get("run", 0) <= 200


SAME_NAMES = {
    "main": "the start of every program",
    **dict.fromkeys(("changes", "snapshots"), "of two references with one interface"),
    "Schedule": "of a rate, which plug-ins import, and the command that agents know by this name",
}
"""Public name -> why it may stand in several files."""


def test_a_public_name_has_one_meaning() -> None:
    files: dict[str, list[str]] = {}
    for package in ROOT_PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                    files.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    several = {name: places for name, places in files.items() if len(places) > 1}
    assert {name: places for name, places in several.items() if name not in SAME_NAMES} == {}
    assert SAME_NAMES.keys() - several.keys() == set()


def test_names_of_test_files_are_unique(tracked: dict[str, str]) -> None:
    names = Counter(Path(name).name for name in tracked if Path(name).name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


ENTRY_POINTS = [
    *((name, target) for group in PROJECT["entry-points"].values() for name, target in group.items()),
    *PROJECT["scripts"].items(),
]


@pytest.mark.parametrize(("name", "target"), ENTRY_POINTS, ids=[name for name, _ in ENTRY_POINTS])
def test_entry_points_can_be_loaded(name: str, target: str) -> None:
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    assert callable(found)
    if isinstance(found, type):
        assert getattr(found, "name", name) == name


DRAWING_LIMITS = {
    "analysis": (8, 16),
    "campaign": (8, 16),
    "controller": (6, 11),
    "agents/worker": (6, 12),
    "scheduler": (14, 31),
}
"""Package -> maximum numbers of boxes and arrows in a drawing of its imports."""


def _boxes(room: str) -> set[str]:
    """Return the direct children of a package, files and folders, as modules."""
    package = room.replace("/", ".")
    children = [path for path in (ROOT / room).iterdir() if path.is_dir() or path.suffix == ".py"]
    return {
        f"{package}.{path.stem}"
        for path in children
        if not path.name.startswith("_") and (path.is_file() or (path / "__init__.py").exists())
    }


def _imports(path: Path) -> Iterator[str]:
    """Return the modules and names that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("room", DRAWING_LIMITS)
def test_a_drawing_of_a_package_has_few_boxes_and_arrows(room: str) -> None:
    boxes = _boxes(room)
    arrows = set()
    for path in (ROOT / room).rglob("*.py"):
        source = ".".join(path.relative_to(ROOT).with_suffix("").parts[: room.count("/") + 2])
        targets = {box for name in _imports(path) for box in boxes if f"{name}.".startswith(f"{box}.")}
        arrows |= {(source, target) for target in targets - {source} if source in boxes}
    most_boxes, most_arrows = DRAWING_LIMITS[room]
    assert len(boxes) <= most_boxes
    assert len(arrows) <= most_arrows, sorted(arrows)


@pytest.mark.parametrize("room", [*ROOT_PACKAGES, *(room for room in DRAWING_LIMITS if "/" in room)])
def test_every_file_and_folder_of_a_package_has_its_layer(room: str) -> None:
    listed = [{name.strip() for layer in layers for name in layer.split(":")} for layers in LAYERS]
    boxes = _boxes(room)
    assert not boxes or boxes in listed, f"pyproject.toml: no contract lists exactly {sorted(boxes)}"


USES_CTYPES = {
    "inventory/libc.py": "system calls",
    "agents/host_files.py": "perf events, also on hosts without Millrace",
    "agents/host/facts.py": "measured machine code",
    "scheduler/partitioning/jit_cache.py": "compiled functions of Numba",
}
"""File -> what it uses `ctypes` for."""


def test_the_c_library_is_called_in_one_place() -> None:
    files = {str(path.relative_to(ROOT)): path for package in ROOT_PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {name for name, path in files.items() if any("ctypes" in each for each in _imports(path))} == {*USES_CTYPES}


def test_only_commands_and_the_display_use_the_terminal() -> None:
    found = []
    for path in (ROOT / "campaign").rglob("*.py"):
        if path.relative_to(ROOT).parts[1] in ("commands", "display"):
            continue
        text = path.read_text()
        called = {ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}
        imported = {name.partition(".")[0] for name in _imports(path)}
        found += [f"{path}: {name}" for name in (called & {"print", "input"}) | (imported & {"click", "rich"})]
        found += [f"{path}: {name}" for name in ("sys.stdout", "sys.stderr") if name in text]
    assert found == []


def _imported(path: Path) -> set[str]:
    """Return the top-level names that a program imports, also through `tests/support`."""
    found: set[str] = set()
    new = [path]
    while new:
        names = set()
        for node in ast.walk(ast.parse(new.pop().read_text())):
            names |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            names |= {node.module} if isinstance(node, ast.ImportFrom) and node.module else set()
        names = {name.partition(".")[0] for name in names} - found
        found |= names
        support = (ROOT / "tests" / "support" / f"{name}.py" for name in sorted(names))
        new += [file for file in support if file.is_file()]
    return found


def test_benchmarks_need_no_more_than_set_up_installs_unless_their_page_says_so() -> None:
    distributions = packages_distributions()
    set_up, development = set(_locked("controller")), set(_locked("dev"))
    used = {
        (path.name, name)
        for path in (ROOT / "benchmarks").rglob("*.py")
        for name in _imported(path)
        if (owners := {canonicalize_name(owner) for owner in distributions.get(name, ())}) & development
        and not owners & set_up
    }
    assert used == set()
