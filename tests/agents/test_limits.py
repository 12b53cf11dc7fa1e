"""An agent enters the control groups that provisioning created for it, or does not start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents.__main__ import enter_groups
from inventory.errors import UnfitError


def test_an_agent_writes_its_id_to_every_control_group(tmp_path):
    files = [tmp_path / "cpu", tmp_path / "memory"]
    for file in files:
        file.touch()
    (tmp_path / "groups").write_text("".join(f"{file}\n" for file in files))
    enter_groups(tmp_path)
    assert [file.read_text() for file in files] == [f"{os.getpid()}\n"] * 2


def test_without_control_groups_nothing_is_entered(tmp_path):
    before = Path("/proc/self/cgroup").read_text()
    enter_groups(tmp_path)
    assert Path("/proc/self/cgroup").read_text() == before


def test_a_missing_group_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "groups").write_text(f"{tmp_path}/gone/cgroup.procs\n")
    with pytest.raises(UnfitError, match=r"gone/cgroup.procs: No such file.*provision it again"):
        enter_groups(tmp_path)


def test_an_agent_whose_limits_would_not_hold_does_not_start(tmp_path):
    home = tmp_path / "home"
    (home / "venv").mkdir(parents=True)
    (home / "groups").write_text("/proc/no-such-group/cgroup.procs\n")
    start = f"import sys; sys.prefix = {str(home / 'venv')!r}; from agents.__main__ import main; sys.exit(main())"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-P", "-c", start], stdin=pipe, stderr=pipe, text=True) as agent:
        assert agent.stderr is not None
        message = agent.stderr.read()
    assert agent.returncode == 3
    assert "/proc/no-such-group/cgroup.procs" in message
