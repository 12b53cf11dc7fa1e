"""An agent enters the groups that provisioning made for it, or does not start."""

import os
import subprocess
import sys

import pytest

from agents.__main__ import enter_groups
from inventory.errors import UnfitError


def test_an_agent_writes_its_id_to_every_entrance(tmp_path):
    entrances = [tmp_path / "cpu", tmp_path / "memory"]
    for entrance in entrances:
        entrance.touch()
    (tmp_path / "groups").write_text("".join(f"{entrance}\n" for entrance in entrances))
    enter_groups(tmp_path)
    assert [entrance.read_text() for entrance in entrances] == [f"{os.getpid()}\n"] * 2


def test_where_nothing_was_made_nothing_is_entered(tmp_path):
    enter_groups(tmp_path)


def test_a_group_that_is_gone_is_an_error_that_says_what_to_do(tmp_path):
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
        said = agent.stderr.read()
    assert agent.returncode == 3
    assert "/proc/no-such-group/cgroup.procs" in said
