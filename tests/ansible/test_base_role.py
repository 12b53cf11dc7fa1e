"""Installation of Millrace on nodes: wheels are built on the controller, and installed without an index, completely."""

import pwd
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from ansible_modules import module_utils, run_module

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
installed = module_utils("millrace_installed").installed


def base_facts(**changes):
    args = {"home": "/nonexistent", "python": sys.executable, "user": "root", "programs": {"sh": "dash"}, **changes}
    return run_module("millrace_base_facts", args)


def test_facts_of_a_host_name_the_target_of_its_wheels():
    facts = base_facts()
    version = ".".join(map(str, sys.version_info[:2]))
    assert facts["target"].startswith(f"{version}-")
    assert (facts["has_home"], facts["installed"], facts["missing"]) == (False, None, [])
    assert facts["user_home"] == pwd.getpwnam("root").pw_dir
    assert base_facts(user="no-such-user")["user_home"] is None


def test_packages_of_missing_programs_are_named_once():
    programs = {"no-such-program": "one", "nor-this": "one", "sh": "dash"}
    assert base_facts(programs=programs)["missing"] == ["one"]


def test_an_old_python_is_refused(tmp_path):
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho '[3, 9, \"linux-x86_64\"]'\n")
    old.chmod(0o755)
    assert f"{old} is Python 3.9; 3.11 or newer is needed" in base_facts(python=str(old))["msg"]
    assert "there is no 'python4'" in base_facts(python="python4")["msg"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Arguments and archive of a build for this Python, from a copy of the checkout; only the build needs an index."""
    cache, checkout = tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("checkout")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements/node.txt"):
        (checkout / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    arguments = {"checkout": str(checkout), "cache": str(cache), "targets": [base_facts()["target"]]}
    assert run_module("millrace_wheels", arguments, check=True)["changed"]
    assert not any(cache.iterdir())
    answer = run_module("millrace_wheels", arguments)
    assert answer["changed"], answer.get("msg")
    (archive,) = answer["archives"].values()
    return arguments, archive


def test_wheels_are_built_once(built):
    arguments, archive = built
    again = run_module("millrace_wheels", arguments)
    assert (again["changed"], list(again["archives"].values())) == (False, [archive])
    with tarfile.open(archive["path"]) as packed:
        names = packed.getnames()
    locked = {line.split("==")[0] for line in (ROOT / "requirements/node.txt").read_text().splitlines() if "==" in line}
    assert {"pip.zip"} <= set(names)
    assert len(names) == len(locked) + 2  # those, Millrace itself and pip


def environment(home, archive, check=False, **changes):
    arguments = {"home": str(home), "python": sys.executable, "digest": archive["digest"], "archive": archive["path"]}
    return run_module("millrace_environment", {**arguments, **changes}, check=check)


def test_an_environment_is_installed_once_and_runs_an_agent(built, tmp_path):
    _, archive = built
    home = tmp_path / "home"
    assert environment(home, archive, check=True)["changed"]
    assert not home.exists()
    half = home / f"venv-{archive['digest']}"  # an installation that was killed
    (half / "lib").mkdir(parents=True)
    (half / "lib" / "half").touch()
    (home / "venv").symlink_to(half.name)
    assert installed(home) is None
    answer = environment(home, archive)
    assert answer["changed"], answer.get("msg")
    assert installed(home) == archive["digest"]
    assert not (half / "lib" / "half").exists()
    assert not environment(home, archive)["changed"]
    # This checkout is out of reach: another working directory, and no script folder on the path.
    facts = [str(home / "venv/bin/python"), "-P", "-m", "agents.cpu", "facts"]
    done = subprocess.run(facts, cwd="/", env={}, input="", capture_output=True, text=True, check=True)
    assert '"sockets"' in done.stdout

    other = home / "venv-other"
    other.mkdir()
    assert environment(home, archive, state="absent", check=True)["changed"]
    assert installed(home) == archive["digest"]
    assert environment(home, archive, state="absent")["changed"]
    assert not any(home.iterdir())
    assert not environment(home, archive, state="absent")["changed"]


def test_a_broken_archive_leaves_the_old_environment(built, tmp_path):
    _, archive = built
    old = tmp_path / "venv-old"
    old.mkdir()
    (old / "millrace-complete").touch()
    (tmp_path / "venv").symlink_to("venv-old")
    broken = tmp_path / "wheels-broken.tar"
    broken.write_bytes(Path(archive["path"]).read_bytes()[:100_000])
    answer = environment(tmp_path, {"digest": "broken", "path": str(broken)})
    assert answer["failed"]
    assert installed(tmp_path) == "old"
