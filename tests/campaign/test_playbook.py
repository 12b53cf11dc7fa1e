"""Commands that run ansible-playbook, with small playbooks that change nothing on this host."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from campaign.admin import playbook
from campaign.admin.playbook_output import follow, listed_tasks
from campaign.commands import hosts as hosts_commands
from campaign.commands import main
from campaign.display import terminal
from inventory.ansible_hosts import Hosts
from inventory.reading import read_hosts

INVENTORY = "workers:\n  hosts:\n    here: {ansible_connection: local, ansible_python_interpreter: PYTHON}\n"

PLAY = """\
- hosts: workers
  gather_facts: false
  tasks:
"""

ANSIBLE_OUTPUT = """
PLAY [Provision] ***************************************************************

TASK [base : One] **************************************************************
ok: [n1]

TASK [base : Two] **************************************************************
--- before
+++ after
changed: [n1]

TASK [base : Two and a half] ***************************************************
[ERROR]: Task failed: Failed to connect to the host via ssh: Warning: Permanently added 'n2'.
ops@n2: Permission denied (publickey).
Origin: /base/tasks/main.yml:1:3
fatal: [n2]: UNREACHABLE! =>
    changed: false
    msg: |-
        Task failed: Failed to connect to the host via ssh: Warning: Permanently added 'n2'.
        ops@n2: Permission denied (publickey).
    unreachable: true
ok: [n1]
fatal: [n1 -> n3(10.0.0.3)]: UNREACHABLE! =>
    msg: 'Failed to connect to the host via ssh: ssh: connect to host 10.0.0.3
        port 22: Connection refused'

RUNNING HANDLER [base : Three] *************************************************
[ERROR]: Task failed: no such thing
Origin: /base/handlers/main.yml:3:3
1 - name: Three
  ^ column 3
fatal: [n1]: FAILED! =>
    changed: false
    msg: 'Task failed: no such thing'
ok: [n3]
fatal: [n2]: FAILED! =>
    msg: |-
        not here
        nor there

TASK [base : Four] *************************************************************
fatal: [n1]: FAILED! =>
    msg: exit 1
    stderr: no room

PLAY RECAP *********************************************************************
n1                         : ok=2    changed=1    unreachable=0    failed=1

"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    path = tmp_path_factory.mktemp("lab") / "lab.yml"
    path.write_text(INVENTORY.replace("PYTHON", sys.executable))
    return read_hosts(path)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: Hosts) -> Path:
    """Folder of playbooks; `lab.yml` is an inventory of this host, which is read only once."""
    monkeypatch.setattr(playbook, "PLAYBOOKS", tmp_path)
    monkeypatch.setattr(
        hosts_commands, "read_hosts", lambda name, options=(): hosts if name == "lab.yml" else read_hosts(name, options)
    )
    return tmp_path


def write(workspace: Path, name: str, *tasks: str) -> None:
    (workspace / f"{name}.yml").write_text(PLAY + "".join(f"    - {task}\n" for task in tasks))


def millrace(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main.run(words)
    captured = capfd.readouterr()
    return status, captured.out, captured.err


def test_output_of_ansible_is_parsed() -> None:
    tasks: list[str] = []
    changes: list[list[str]] = []
    outcome = follow(ANSIBLE_OUTPUT.splitlines(keepends=True), tasks.append, changes.append)
    assert tasks == ["base : One", "base : Two", "base : Two and a half", "base : Four"]
    assert outcome.unreachable == {
        "n2": "ops@n2: Permission denied (publickey).",
        "n3": "ssh: connect to host 10.0.0.3 port 22: Connection refused",
    }
    assert changes == [["base : Two:", "--- before", "+++ after", "changed: [n1]"]]
    assert outcome.failed == [
        ("base : Three", ["n1: no such thing", "n2: not here", "  nor there", "see /base/handlers/main.yml:3"]),
        ("base : Four", ["fatal: [n1]: FAILED! =>", "    msg: exit 1", "    stderr: no room"]),
    ]
    assert [line.split()[0] for line in outcome.recap] == ["n1"]


def test_a_successful_play_shows_its_tasks_and_the_recap(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(workspace, "provision", "{name: Look, ansible.builtin.ping: }")
    status, out, err = millrace(capfd, "provision", "lab.yml")
    assert status == 0
    assert out.startswith("here ")
    assert "failed=0" in out
    assert re.search(r"1( of 1)?: Look", err)


def test_steps_are_counted_and_a_long_task_says_something_at_least_every_ten_seconds(
    workspace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "PLAIN_EVERY_S", 0.5)
    tasks = ["{name: Wait, ansible.builtin.pause: {seconds: 8}}"]
    write(
        workspace, "provision", *tasks, *("{name: Look %s, ansible.builtin.ping: }".replace("%s", at) for at in "abc")
    )
    status, _, err = millrace(capfd, "provision", "lab.yml")
    assert status == 0
    assert len(re.findall(r"^provision +\d+ s +\S+( of 4)?: Wait$", err, re.MULTILINE)) >= 8
    assert re.search(r"^provision +\d+ s +4 of 4: Look c$", err, re.MULTILINE)


def test_the_place_in_the_list_counts_where_tasks_are_left_out_or_added(capsys: pytest.CaptureFixture[str]) -> None:
    listed = listed_tasks(
        "\nplaybook: provision.yml\n\n  play #1 (workers): Check\tTAGS: [always]\n    tasks:\n"
        "      common : Validate\tTAGS: [always]\n      One\tTAGS: []\n      common : Validate\tTAGS: []\n"
        "      Two\tTAGS: [a, b]\n"
    )
    assert listed == ["common : Validate", "One", "common : Validate", "Two"]
    with terminal.tasks_shown("provision", quiet=False, color=False) as progress:
        progress.begin_task("common : Validate")
        progress.set_steps(listed)
        for task in ("One", "of an included file", "Two", "of a handler"):
            progress.begin_task(task)
    shown = [line.split(" s  ")[1] for line in capsys.readouterr().err.splitlines()]
    assert shown == [
        "1: common : Validate",
        "2 of 4: One",
        "2 of 4: of an included file",
        "4 of 4: Two",
        "4 of 4: of a handler",
    ]


@pytest.mark.parametrize(
    ("task", "options", "status", "words"),
    [
        ("{name: Break, ansible.builtin.fail: {msg: it broke}}", (), 1, ["Break:\n  here: it broke"]),
        ("{name: 'preflight : Look', ansible.builtin.fail: {msg: at most 4}}", (), 3, ["at most 4"]),
        ("{ansible.builtin.ping: }", ("--nonsense",), 2, ["unrecognized arguments: --nonsense"]),
        ("{ansible.builtin.ping: }", ("-e", "ansible_connection=ssh ansible_port=9"), 3, ["here: ssh: ", "must work"]),
        ("{ansible.builtin.ping: }", ("--limit", "her"), 2, ["no host 'her'; did you mean 'here'?"]),
        ("{ansible.builtin.nonesuch: }", (), 1, ["ansible.builtin.nonesuch", "provision.yml:4"]),
    ],
)
def test_failures_are_reported_with_their_exit_status(
    workspace: Path,
    capfd: pytest.CaptureFixture[str],
    task: str,
    options: tuple[str, ...],
    status: int,
    words: list[str],
) -> None:
    write(workspace, "provision", task)
    got, out, err = millrace(capfd, "provision", "lab.yml", "--", *options)
    assert got == status
    for word in words:
        assert word in err
    assert "it broke" not in out


def test_a_missing_key_is_reported_in_a_line_per_host_with_a_hint(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    missing = workspace / "id_ed25519.pub"
    key = f"{{{{ lookup('file', '{missing}') }}}}"
    write(workspace, "provision", f'{{name: Keys, ansible.builtin.debug: {{msg: "{key}"}}}}')
    status, _, err = millrace(capfd, "--quiet", "provision", "lab.yml")
    assert status == 1
    _, *lines = err.splitlines()
    assert lines == [
        "  Keys:",
        f"  here: this machine has no file '{missing}'; make it (a key: ssh-keygen -t ed25519), or name another one",
        f"  see {workspace}/provision.yml:4",
    ]


def test_check_shows_what_would_change_and_changes_nothing(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = f"{{name: Copy, ansible.builtin.copy: {{content: new, dest: {workspace}/file, mode: '0600'}}}}"
    write(workspace, "provision", copy)
    status, out, err = millrace(capfd, "--quiet", "provision", "lab.yml", "--check")
    assert (status, "changed=1" in out) == (0, True)
    assert "+new" in err
    assert not (workspace / "file").exists()


CHECKS = [
    {"node": "here", "to": None, "what": "cores", "asked": 2, "got": 2, "unit": None, "ok": True},
    {"node": "here", "to": "there", "what": "rate", "asked": 100, "got": 95.5512, "unit": "Mbit/s", "ok": False},
]


@pytest.mark.parametrize("ok", [True, False])
def test_verify_shows_requested_and_measured_values(
    workspace: Path, capfd: pytest.CaptureFixture[str], ok: bool
) -> None:
    found = json.dumps({"ok": ok, "checks": CHECKS[: 1 if ok else 2]})
    keep = (
        f"ansible.builtin.copy: {{content: {json.dumps(found)}, dest: '{{{{ millrace_verify_file }}}}', mode: '0600'}}"
    )
    write(
        workspace, "verify", f"{{name: Measure, {keep}}}", *([] if ok else ["{ansible.builtin.fail: {msg: not all}}"])
    )
    status, out, err = millrace(capfd, "verify", "lab.yml", *(["--json"] if ok else []))
    assert status == (0 if ok else 1)
    if ok:
        assert json.loads(out) == json.loads(found)
        assert "failed=0" in err
    else:
        assert "here  there  rate   100    95.55  Mbit/s  NOT OK" in out


def test_a_cluster_file_cannot_be_provisioned(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = millrace(capfd, "provision", "loopback")
    assert status == 2
    assert "loopback.yml: is a cluster file" in err


def test_ctrl_c_ends_ansible_and_all_of_its_descendants(workspace: Path, hosts: Hosts) -> None:
    pid_file = workspace / "pid"
    write(workspace, "provision", f"{{ansible.builtin.shell: 'echo $$ > {pid_file}; exec sleep 600'}}")
    imports = "import campaign.admin.playbook as p, millrace.__main__, pathlib"
    start = f"{imports}; p.PLAYBOOKS = pathlib.Path({str(workspace)!r})"
    command = [sys.executable, "-c", f"{start}; millrace.__main__.main()", "provision", str(hosts.path)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while not pid_file.exists() or not pid_file.read_text():
            assert process.poll() is None
            time.sleep(0.05)
        descendants = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        assert not [child for child in descendants if child.is_running()]
        assert not psutil.pid_exists(int(pid_file.read_text()))
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("options", "looks", "partial"),
    [
        (["-v", "--ask-become-pass"], False, False),
        (["--limit", "n1"], False, True),
        (["-ln1"], False, True),
        (["--tags=network"], False, True),
        (["--check", "--diff"], True, False),
        (["--list-tasks", "-t", "cpu"], True, True),
    ],
)
def test_read_only_and_partial_options_are_recognised(options: list[str], looks: bool, partial: bool) -> None:
    choice = playbook.Choice(options=options)
    assert (choice.is_read_only, choice.is_partial) == (looks, partial)
    assert playbook.Choice(check=True).is_read_only


@pytest.mark.parametrize("verb", ["provision", "restore", "verify"])
def test_a_misspelt_group_of_workers_is_refused_with_the_nearest_before_ansible_starts(
    verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lab.yml").write_text(INVENTORY.replace("workers", "worker").replace("PYTHON", sys.executable))
    status, out, err = millrace(capfd, verb, str(tmp_path / "lab.yml"))
    assert (status, out) == (2, "")
    assert "the group 'workers' holds no host; did you mean 'worker'?" in err


@pytest.mark.parametrize("name", ["provision", "restore"])
def test_hosts_that_a_campaign_uses_are_refused_with_its_name_unless_forced(
    workspace: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    write(
        workspace,
        name,
        "{ansible.builtin.import_role: {name: preflight, tasks_from: lease}}",
        f"{{name: Change, ansible.builtin.command: touch {workspace}/changed}}",
    )
    lock = workspace / ".lock"
    lock.write_text("campaign-1\npid 7 of alice, campaign /results/night")
    options = ("--", "-e", f"millrace_work={workspace}", "-e", "ansible_become=false")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        status, _, err = millrace(capfd, name, "lab.yml", *options)
        assert status == 3
        assert "here: in use by pid 7 of alice, campaign /results/night. Wait until it has ended, or go on" in err
        assert not (workspace / "changed").exists()
        assert millrace(capfd, name, "lab.yml", "--force", *options)[0] == 0
    assert (workspace / "changed").exists()
