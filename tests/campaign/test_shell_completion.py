"""Completion by the shell: the documented lines work, and commands that are loaded late are completed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from campaign.agenda.agenda import builtin_agendas
from campaign.commands.main import millrace
from inventory.plugins import plugins
from inventory.reading import shipped_inventories

MILLRACE = Path(sys.executable).with_name("millrace")
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
LINES = dict(re.findall(r"^\| (bash|zsh|fish)\b.*\| `([^`]+)` \|$", PAGE, re.MULTILINE))


def _completions(shell: str, *words: str) -> list[str]:
    """Return the completions of `millrace` for the last of `words`."""
    place = words[-1] if shell == "fish" else str(len(words) - 1)
    environment = {
        **os.environ,
        "_MILLRACE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": place,
    }
    done = subprocess.run([MILLRACE], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_every_shell_has_its_line() -> None:
    assert LINES.keys() == {"bash", "zsh", "fish"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_defines_completion_for_the_shell(shell: str) -> None:
    assignment = re.search(r"(_MILLRACE_COMPLETE)=(\w+) millrace", LINES[shell].replace("\\|", "|"))
    assert assignment is not None
    environment = {**os.environ, assignment[1]: assignment[2]}
    done = subprocess.run([MILLRACE], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    assert f"_MILLRACE_COMPLETE={shell}_complete" in done.stdout


def test_commands_options_and_nothing_unknown_are_completed() -> None:
    assert _completions("bash", "millrace", "pl") == ["plain,place"]
    assert "plain,--topology" in _completions("bash", "millrace", "place", "--")
    assert any(line.startswith("plain,--scheduler") for line in _completions("fish", "millrace", "place", "--sch"))
    assert _completions("zsh", "millrace", "lis")[:2] == ["plain", "list"]
    _completions("bash", "millrace", "plcae", "--sch")


AGENDAS, INVENTORIES = set(builtin_agendas()), set(shipped_inventories())
SCHEDULERS, WORKLOADS = set(plugins("millrace.schedulers")), set(plugins("millrace.workloads"))


@pytest.mark.parametrize(
    ("words", "names", "files"),
    [
        (("run",), AGENDAS, True),
        (("run", "demo", "--inventory"), INVENTORIES, True),
        (("place", "--cluster"), INVENTORIES, True),
        (("place", "--topology"), WORKLOADS, True),
        (("place", "--cluster", "loopback", "--topology", "wordcount", "--scheduler"), SCHEDULERS, False),
        (("place", "--compare"), SCHEDULERS, False),
        (("revise", "--cluster"), INVENTORIES, True),
        (("revise", "--topology"), WORKLOADS, True),
        (("revise", "--scheduler"), SCHEDULERS, False),
        (("check", "scheduler"), SCHEDULERS, False),
        (("check", "workload"), WORKLOADS, False),
        *(((command,), INVENTORIES, True) for command in ("provision", "restore", "verify", "calibrate", "exec")),
        (("list",), {"schedulers", "workloads", "agendas", "sensors"}, False),
    ],
)
def test_installed_names_are_completed_and_files_where_one_may_be_given(
    words: tuple[str, ...], names: set[str], files: bool
) -> None:
    found = BashComplete(millrace, {}, "millrace", "_MILLRACE_COMPLETE").get_completions([*words], "")
    assert {item.value for item in found if item.type == "plain"} == names
    assert [item.value for item in found if item.type == "file"] == [""] * files
    first = min(names)
    found = BashComplete(millrace, {}, "millrace", "_MILLRACE_COMPLETE").get_completions([*words], first[:3])
    assert {item.value for item in found if item.type == "plain"} == {n for n in names if n.startswith(first[:3])}


def test_the_last_name_of_a_list_of_schedulers_is_completed_and_none_twice() -> None:
    assert _completions("bash", "millrace", "place", "--compare", "even,ev") == [""]
    assert _completions("bash", "millrace", "place", "--compare", "even,top") == ["plain,even,top-storm"]
    assert len(_completions("bash", "millrace", "place", "--compare", "even,t-storm,")) == len(SCHEDULERS) - 2


@pytest.mark.parametrize(
    "words", [("place", "--scheduler"), ("place", "--cluster"), ("check", "workload"), ("verify",), ("revise",)]
)
def test_completing_a_name_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    code = f"""
import sys
from click.shell_completion import BashComplete
from campaign.commands.main import millrace
found = BashComplete(millrace, {{}}, "millrace", "_MILLRACE_COMPLETE").get_completions({[*words]}, "")
heavy = {{"numpy", "pandas", "pyarrow", "numba", "ansible", "rich", "paramiko", "matplotlib"}}
print(*sorted(heavy & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "\n"


def test_bash_completes_after_the_documented_line() -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    script = f"""
{LINES["bash"]}
COMP_WORDS=(millrace pl) COMP_CWORD=1
_millrace_completion millrace
echo "${{COMPREPLY[*]}}"
"""
    path = os.pathsep.join([str(MILLRACE.parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "place\n"
