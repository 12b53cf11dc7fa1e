"""The rules of the house that no linter knows: locks, addresses, paths, sizes, entry points."""

import re
import subprocess
import tomllib
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = PROJECT["dependencies"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKS = ("build", "node", "controller", "dev", "docs", "java")

MOST_LINES = 400
MAY_BE_LONGER = re.compile(
    r"^(LICENSE|tests/kept_results/.*|requirements/.*\.txt|docs/reference/cli\.md|docs/schemas/.*\.json|docs/.*\.svg)$"
)


def _locked(name: str) -> dict[str, list[tuple[Requirement, int]]]:
    """Package -> its pins in a lock file, each with its number of hashes; one pin per Python where they differ."""
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


WANTED = {
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
    for wanted in map(Requirement, WANTED[lock]):
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
def test_going_from_one_lock_to_the_next_replaces_nothing(smaller: str, larger: str) -> None:
    few, many = (
        # The larger one may need a package on more platforms than the smaller one.
        {name: {(str(pin.specifier), hashes) for pin, hashes in pins} for name, pins in _locked(lock).items()}
        for lock in (smaller, larger)
    )
    assert {name: pins for name, pins in many.items() if name in few} == few


@pytest.mark.parametrize(("first", "second"), [("build", "dev"), ("build", "docs"), ("dev", "docs")])
def test_locks_for_one_environment_agree_on_versions(first: str, second: str) -> None:
    ours, theirs = _locked(first), _locked(second)
    shared = ours.keys() & theirs.keys()
    first_pins, second_pins = ({name: pins[name][0][0].specifier for name in shared} for pins in (ours, theirs))
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
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_no_file_names_a_package_registry(tracked: dict[str, str]) -> None:
    # Written so that this file does not find itself.
    assert (
        _hits(tracked, r"(?i)py[p]i\.org|python[h]osted|index[-_]u[r]l|find[-_]l[i]nks|repo1\.mav[e]n|deb\.deb[i]an")
        == []
    )


def test_no_file_names_a_place_on_the_machine_where_it_was_written(tracked: dict[str, str]) -> None:
    assert _hits(tracked, r"(?<![\w.~$}{)/-])/(?:work|root|home|Users|opt(?!/millrace))/[\w.]") == []


def test_no_file_is_longer_than_one_idea(tracked: dict[str, str]) -> None:
    lengths = {name: text.count("\n") for name, text in tracked.items() if not MAY_BE_LONGER.match(name)}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
    assert lengths.get("run", 0) <= 200


def test_test_files_have_names_of_their_own(tracked: dict[str, str]) -> None:
    names = Counter(Path(name).name for name in tracked if Path(name).name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


ENTRY_POINTS = [
    *((name, target) for group in PROJECT["entry-points"].values() for name, target in group.items()),
    *PROJECT["scripts"].items(),
]


@pytest.mark.parametrize(("name", "target"), ENTRY_POINTS, ids=[name for name, _ in ENTRY_POINTS])
def test_entry_points_lead_somewhere(name: str, target: str) -> None:
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    assert callable(found)
    if isinstance(found, type):
        assert getattr(found, "name", name) == name
