"""Playing one of Millrace's playbooks on the hosts of an inventory.

`ansible-playbook` does the work, in a process of its own; the same command typed by hand does the same.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from msgspec.structs import replace

from campaign.admin.playbook_output import Outcome, follow
from campaign.display.settings import Settings, show
from campaign.display.task_progress import tasks_shown
from controller.emulation.lifecycle import cluster_for_playbook
from controller.host.signals import interrupted_once
from inventory.ansible_hosts import Hosts
from inventory.ansible_listing import CONFIGURATION
from inventory.errors import InputError, MillraceError, RunError, UnfitError, nearest
from inventory.parent_death import end_with

PLAYBOOKS = Path(__file__).parents[2] / "ansible"

PREFLIGHT = "preflight : "
"""Tasks of this role only look whether the wishes can be met."""

ARGUMENTS = "Validating arguments against arg spec"
"""Ansible's own name of the task that checks a role's variables."""

PARTS = ("-l", "--limit", "-t", "--tags", "--skip-tags", "--start-at-task", "--step")
"""Options that leave out hosts or tasks."""

LOOKS = ("-C", "--check", "--list-", "--syntax-check", "--version", "-h", "--help")
"""Options with which nothing is changed."""

WRONG_OPTION = "ansible-playbook: error: "
NO_HOSTS = "leaves us with no hosts to target"
NO_SUCH_HOST = "[WARNING]: Could not match supplied host pattern, ignoring: "
"""Words of Ansible's: its exit statuses stand for several things each."""

NO_LOGIN, NO_HOST_KEY = "Permission denied", "Host key verification failed"
"""Words of OpenSSH's."""

OWN_TIME_S, TERM_TIME_S = 3.0, 5.0
"""How long an interrupted playbook may take to end by itself, and then after each request to."""


class Choice(NamedTuple):
    """What of a playbook is played.

    Attributes:
        check: only say what would change.
        options: further arguments of ansible-playbook.
        variables: that this play gets beside the inventory's.
        only_errors: the recap goes to standard error, too.
    """

    check: bool = False
    options: Sequence[str] = ()
    variables: Mapping[str, Any] = {}
    only_errors: bool = False

    @property
    def only_looks(self) -> bool:
        """Whether nothing is changed."""
        return self.check or any(option.startswith(LOOKS) for option in self.options)

    @property
    def is_partial(self) -> bool:
        """Whether hosts or tasks are left out."""
        return any(option.startswith(PARTS) for option in self.options)


def play(name: str, hosts: Hosts, choice: Choice, settings: Settings) -> Outcome:
    """Play the playbook `name`, show how far it is, and return how it went once every host has done all of it.

    Ctrl-C ends Ansible; what was done stays done, and what was changed can be put back.

    Raises:
        UnfitError: Ansible or the playbook is missing, a host cannot be reached, or a wish cannot be met.
        InputError: a variable or an option is wrong, or the inventory has no workers.
        RunError: a task failed.
    """
    # Ansible would do nothing and call it done.
    hosts.workers  # noqa: B018 - says what is wrong, and what the group may be called
    playbook = PLAYBOOKS / f"{name}.yml"
    if find_spec("ansible.cli") is None or not playbook.is_file():
        raise UnfitError(f"{name}: Ansible or its playbooks are missing: use a checkout that ./run setup has set up")
    command = [sys.executable, "-P", "-m", "ansible", "playbook", "-i", str(hosts.path), str(playbook)]
    command += ["--check", "--diff"] if choice.check else []
    command += [part for key, value in choice.variables.items() for part in ("-e", f"{key}={value}")]
    command += choice.options
    with (
        interrupted_once(),
        cluster_for_playbook(name, hosts, choice.only_looks, choice.is_partial, settings.progress),
        tasks_shown(name, settings.quiet, settings.color) as progress,
    ):
        on_change = progress.tells if choice.check else lambda _lines: None
        with _started(command) as process:
            outcome = follow(process.stdout or (), progress.begins, on_change)
    for line in outcome.recap:
        show(line, error=choice.only_errors)
    if process.returncode != 0:
        raise _fault(name, hosts, process.returncode, outcome)
    return outcome


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    environment = {
        "ANSIBLE_CONFIG": str(CONFIGURATION),
        **os.environ,
        "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        # Otherwise a task is named when its first host is done with it, and not when it begins.
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
    }
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=end_with(os.getpid()),
    )
    try:
        yield process
        process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()


def _end(process: subprocess.Popen[str]) -> None:
    """End Ansible and what it has started.

    A terminal has interrupted it as well, and to be told twice would disturb its own tidying up.
    """
    living = psutil.wait_procs(_family(process), OWN_TIME_S)[1]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for member in living:
            with suppress(psutil.NoSuchProcess):
                member.send_signal(number)
        living = psutil.wait_procs(living, TERM_TIME_S)[1]
    process.wait()


def _family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        first = psutil.Process(process.pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _fault(name: str, hosts: Hosts, status: int, outcome: Outcome) -> MillraceError:
    options = [line.removeprefix(WRONG_OPTION) for line in outcome.said if line.startswith(WRONG_OPTION)]
    if options:
        return InputError("\n".join(f"{name}: {line}" for line in options))
    if any(NO_HOSTS in line for line in outcome.said):
        unknown = [line.removeprefix(NO_SUCH_HOST) for line in outcome.said if line.startswith(NO_SUCH_HOST)]
        hints = [f"no host {pattern!r}{nearest(pattern, hosts.by_name)}" for pattern in unknown]
        return InputError(
            f"{name}: nothing is left to play on: {'; '.join(hints) or 'the options leave out all hosts'}"
        )
    away = [f"{host}: {_unreachable(hosts, host, why)}" for host, why in outcome.unreachable.items()]
    if away and not outcome.failed:
        return UnfitError("\n".join([f"{name}: hosts cannot be reached", *away]))
    said = [*away, *(line for task, lines in outcome.failed for line in (f"{task}:", *lines))] or outcome.said
    text = "\n".join([f"{name}: Ansible ended with status {status}", *said])
    if any(ARGUMENTS in task for task, _ in outcome.failed):
        return InputError(text)
    if away or any(task.startswith(PREFLIGHT) for task, _ in outcome.failed):
        return UnfitError(text)
    return RunError(text)


def _unreachable(hosts: Hosts, name: str, why: str) -> str:
    """Why a host cannot be reached, and what to do about it."""
    # Fabric takes a while to load, which nobody needs whose hosts can be reached.
    from controller.ssh.settings import arguments_of

    host = hosts.by_name.get(name)
    if host is None:
        return why
    login = replace(host, ssh_user=host.variables.get("ansible_user"))
    options = ["-o", "StrictHostKeyChecking=accept-new"] if NO_HOST_KEY in why else []
    command = shlex.join(["ssh", *options, *arguments_of(login), "true"])
    if NO_LOGIN in why:
        return f"{why} Install your key there (ssh-copy-id), until this works without a question: {command}"
    if NO_HOST_KEY in why:
        return f"{why} If it is that host's key, accept it: {command}"
    return f"{why}. This must work: {command}"
