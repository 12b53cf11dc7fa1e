"""The module that installs packages, with real apt and dpkg on a separate root, from packages built here."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_modules import run_module

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="dpkg is for root"),
    pytest.mark.skipif(
        shutil.which("dpkg-deb") is None or shutil.which("dpkg-scanpackages") is None, reason="no dpkg-dev"
    ),
]

PACKAGES = {
    "keeper": "Conflicts: chronos",
    "chronos": "Depends: library\nConflicts: keeper",
    "library": "",
    "other": "Depends: library",
}
"""Two conflicting time daemons, and a dependency of one of them."""


class Host:
    """Root with packages, and the module as a role calls it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"

    def play(self, check=False, **arguments):
        """Run the module; return its result."""
        return run_module("millrace_packages", {"folder": str(self.state), "role": "clock", **arguments}, check=check)

    def has(self):
        """Return package -> its state."""
        shown = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n"],
            capture_output=True,
            text=True,
            check=True,
        )
        return dict(line.split() for line in shown.stdout.splitlines())

    def apt(self, *arguments):
        subprocess.run(["apt-get", "-q", "-y", *arguments], capture_output=True, check=True)


def build_package(folder: Path, name: str, relations: str) -> None:
    """Build a package with one configuration file."""
    tree = folder / name
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "etc").mkdir()
    (tree / "etc" / f"{name}.conf").write_text(name)
    (tree / "DEBIAN" / "conffiles").write_text(f"/etc/{name}.conf\n")
    fields = f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: M <m@example.org>\nDescription: {name}\n"
    (tree / "DEBIAN" / "control").write_text(fields + (f"{relations}\n" if relations else ""))
    subprocess.run(["dpkg-deb", "--build", str(tree), str(folder)], check=True, capture_output=True)
    shutil.rmtree(tree)


@pytest.fixture
def host(tmp_path, monkeypatch):
    pool, root = tmp_path / "pool", tmp_path / "root"
    pool.mkdir()
    for name, more in PACKAGES.items():
        build_package(pool, name, more)
    listed = subprocess.run(
        ["dpkg-scanpackages", "--multiversion", "."], cwd=pool, check=True, capture_output=True, text=True
    )
    (pool / "Packages").write_text(listed.stdout)
    for part in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/cache/apt/archives/partial", "etc/apt", "var/log"):
        (root / part).mkdir(parents=True)
    for part in ("status", "available"):
        (root / "var/lib/dpkg" / part).touch()
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{pool} ./\n")
    settings = f"""
        Dir "{root}/"; Dir::State "{root}/var/lib/apt"; Dir::State::status "{root}/var/lib/dpkg/status";
        Dir::Cache "{root}/var/cache/apt"; Dir::Etc "{root}/etc/apt"; Dir::Log "{root}/var/log";
        Dir::Etc::Parts "/nowhere"; Dir::Bin::Methods "/usr/lib/apt/methods"; Dir::Bin::dpkg "/usr/bin/dpkg";
        DPkg::Options {{"--root={root}"; "--force-script-chrootless"; "--log={root}/var/log/dpkg.log";}};
        APT::Sandbox::User "root"; DPkg::Post-Invoke ""; Acquire::Languages "none";
    """
    (tmp_path / "apt.conf").write_text(settings)
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setenv("DPKG_ROOT", str(root))
    monkeypatch.setenv("DPKG_ADMINDIR", str(root / "var/lib/dpkg"))
    made = Host(tmp_path)
    made.apt("update")
    made.apt("install", "keeper")
    return made


def test_check_mode_reports_installed_and_removed_packages_and_changes_nothing(host):
    would = host.play(names=["chronos"], check=True)
    assert would["changed"], would
    assert (would["installs"], would["removes"]) == (["chronos", "library"], ["keeper"])
    assert host.has() == {"keeper": "installed"}
    assert not host.state.exists()


def test_removed_packages_are_restored_and_their_replacement_is_purged(host):
    assert host.play(names=["chronos"])["changed"]
    assert {name for name, state in host.has().items() if state == "installed"} == {"chronos", "library"}
    assert not host.play(names=["chronos"])["changed"]
    would = host.play(state="absent", check=True)
    assert (would["installs"], would["removes"]) == (["keeper"], ["chronos"])
    assert host.play(state="absent")["changed"]
    # Installed packages stay, except those that conflict.
    assert host.has() == {"keeper": "installed", "library": "installed"}
    assert not host.play(state="absent")["changed"]
    assert not host.state.exists()


def test_installed_packages_are_removed_with_their_dependencies(host):
    host.play(names=["chronos"])
    assert host.play(state="absent", remove=True)["changed"]
    assert host.has() == {"keeper": "installed"}


def test_a_dependency_that_other_packages_need_stays(host):
    host.play(names=["chronos"])
    host.apt("install", "other")
    host.play(state="absent", remove=True)
    assert host.has() == {"keeper": "installed", "library": "installed", "other": "installed"}


def test_an_installation_that_was_interrupted_before_its_start_is_repeated_and_undone(host):
    host.play(names=["chronos"])
    host.apt("purge", "chronos", "library")
    host.apt("install", "keeper")
    host.play(names=["chronos"])
    section = json.loads((host.state / "pre_state.json").read_text())["sections"]["packages/clock"]
    assert section["applied"] == {"installs": ["chronos", "library"], "removes": ["keeper"]}
    host.play(state="absent", remove=True)
    assert host.has() == {"keeper": "installed"}


def test_an_unknown_package_is_named(host):
    refused = host.play(names=["nothing-like-it"])
    assert refused["failed"]
    assert "Unable to locate package nothing-like-it" in refused["msg"]
    # Check mode does not update the package lists, so it cannot know.
    assert host.play(names=["nothing-like-it"], check=True)["installs"] == ["nothing-like-it"]
