"""Run one of Millrace's playbooks on the hosts of an inventory.

The playbook runs in a process of `ansible-playbook`, as if it had been started from a shell. Its tasks are listed
meanwhile, so that they can be counted.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from msgspec.structs import replace

from campaign.admin.playbook_output import Outcome, follow, listed_tasks
from campaign.display.terminal import Settings, show, tasks_shown
from controller.emulation.cluster import cluster_for_playbook
from controller.host.signals import interrupted_once
from inventory.ansible_hosts import Hosts
from inventory.ansible_listing import CONFIGURATION
from inventory.errors import InputError, MillraceError, RunError, UnfitError, nearest
from inventory.parent_death import end_with, signals_held

PLAYBOOKS = Path(__file__).parents[2] / "ansible"

PREFLIGHT = "preflight : "
"""Name prefix of the role's tasks, which only check whether hosts support the settings."""

ARGUMENTS = "Validating arguments against arg spec"
"""Name of the task with which Ansible checks a role's variables."""

PARTIAL = ("-l", "--limit", "-t", "--tags", "--skip-tags", "--start-at-task", "--step")
"""Options that leave out hosts or tasks."""

READ_ONLY = ("-C", "--check", "--list-", "--syntax-check", "--version", "-h", "--help")
"""Options with which Ansible changes nothing."""

ASKING = re.compile(r"-[a-zA-Z]*[kKJ]|--ask-|--vault-id")
"""Options with which Ansible asks for a password."""

WRONG_OPTION = "ansible-playbook: error: "
NO_HOSTS = "leaves us with no hosts to target"
NO_SUCH_HOST = "[WARNING]: Could not match supplied host pattern, ignoring: "
"""Messages of Ansible; its exit statuses are ambiguous."""

NO_LOGIN, NO_HOST_KEY = "Permission denied", "Host key verification failed"
"""Messages of OpenSSH."""

OWN_TIME_S, TERM_TIME_S = 3.0, 5.0
"""Longest time in which an interrupted playbook may end by itself, and then after each signal."""


class Choice(NamedTuple):
    """Options of a playbook run.

    Attributes:
        check: only print what would change.
        options: further arguments of ansible-playbook.
        variables: extra variables beside the inventory's.
        only_errors: print the recap to standard error, too.
        force: go on although a campaign uses the hosts.
    """

    check: bool = False
    options: Sequence[str] = ()
    variables: Mapping[str, Any] = {}
    only_errors: bool = False
    force: bool = False

    @property
    def is_read_only(self) -> bool:
        """True if the run changes nothing."""
        return self.check or any(option.startswith(READ_ONLY) for option in self.options)

    @property
    def is_partial(self) -> bool:
        """True if hosts or tasks are left out."""
        return any(option.startswith(PARTIAL) for option in self.options)


def play(name: str, hosts: Hosts, choice: Choice, settings: Settings) -> Outcome:
    """Run the playbook `name`, show its progress, and return its outcome if it succeeded on every host.

    Ctrl-C ends Ansible; completed changes remain and can be restored.

    Raises:
        UnfitError: Ansible or the playbook is missing, a host cannot be reached, or a setting is not supported.
        InputError: a variable or an option is wrong, or the inventory has no workers.
        RunError: a task failed.
    """
    # Ansible would do nothing and report success.
    hosts.workers  # noqa: B018 - raises InputError with the names that the group may have
    playbook = PLAYBOOKS / f"{name}.yml"
    if find_spec("ansible.cli") is None or not playbook.is_file():
        raise UnfitError(f"{name}: Ansible or its playbooks are missing: use a checkout that ./run setup has set up")
    command = [sys.executable, "-P", "-m", "ansible", "playbook", "-i", str(hosts.path), str(playbook)]
    command += ["--check", "--diff"] if choice.check else []
    command += ["-e", "millrace_force=true"] if choice.force else []
    command += [part for key, value in choice.variables.items() for part in ("-e", f"{key}={value}")]
    command += choice.options
    with (
        interrupted_once(),
        cluster_for_playbook(
            name, hosts, choice.is_read_only, choice.is_partial, settings.progress, force=choice.force
        ),
        tasks_shown(name, settings.quiet, settings.color) as progress,
    ):
        on_change = progress.show_change if choice.check else lambda _lines: None
        with _started(command) as process, _listing(command, progress.set_steps):
            outcome = follow(process.stdout or (), progress.begin_task, on_change)
    for line in outcome.recap:
        show(line, error=choice.only_errors)
    if process.returncode != 0:
        raise _fault(name, hosts, process.returncode, outcome)
    return outcome


@contextmanager
def _listing(command: Sequence[str], on_steps: Callable[[Sequence[str]], None]) -> Iterator[None]:
    """List the tasks of a playbook while the block runs it; the playbook does not wait for it."""
    if any(map(ASKING.match, command)):
        yield
        return
    process = subprocess.Popen(
        [*command, "--list-tasks"],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        preexec_fn=end_with(os.getpid()),
    )
    thread = threading.Thread(target=lambda: on_steps(listed_tasks(process.communicate()[0])), daemon=True)
    thread.start()
    try:
        yield
    finally:
        process.kill()
        thread.join()


def _environment() -> dict[str, str]:
    return {
        "ANSIBLE_CONFIG": str(CONFIGURATION),
        **os.environ,
        "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        # Without it a task is named when its first host has completed it, not when it begins.
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
    }


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    with signals_held() as let_through:
        process = subprocess.Popen(
            command,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=end_with(os.getpid(), let_through),
        )
        try:
            let_through()
            yield process
            process.wait()
        except BaseException:
            _end(process)
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


def _end(process: subprocess.Popen[str]) -> None:
    """End Ansible and its descendants.

    The terminal has sent SIGINT to them as well; a second signal at once would disturb Ansible's own clean-up.
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
    options = [line.removeprefix(WRONG_OPTION) for line in outcome.messages if line.startswith(WRONG_OPTION)]
    if options:
        return InputError("\n".join(f"{name}: {line}" for line in options))
    if any(NO_HOSTS in line for line in outcome.messages):
        unknown = [line.removeprefix(NO_SUCH_HOST) for line in outcome.messages if line.startswith(NO_SUCH_HOST)]
        hints = [f"no host {pattern!r}{nearest(pattern, hosts.by_name)}" for pattern in unknown]
        return InputError(f"{name}: no hosts are left: {'; '.join(hints) or 'the options leave out all hosts'}")
    away = [f"{host}: {_unreachable(hosts, host, why)}" for host, why in outcome.unreachable.items()]
    if away and not outcome.failed:
        return UnfitError("\n".join([f"{name}: hosts cannot be reached", *away]))
    messages = [*away, *(line for task, lines in outcome.failed for line in (f"{task}:", *lines))] or outcome.messages
    text = "\n".join([f"{name}: Ansible ended with status {status}", *messages])
    if any(ARGUMENTS in task for task, _ in outcome.failed):
        return InputError(text)
    if away or any(task.startswith(PREFLIGHT) for task, _ in outcome.failed):
        return UnfitError(text)
    return RunError(text)


def _unreachable(hosts: Hosts, name: str, why: str) -> str:
    """Return why a host cannot be reached, and how to fix it."""
    # Fabric takes long to load and is only needed here.
    from controller.ssh.settings import arguments_of

    host = hosts.by_name.get(name)
    if host is None:
        return why
    login = replace(host, ssh_user=host.ansible_user)
    options = ["-o", "StrictHostKeyChecking=accept-new"] if NO_HOST_KEY in why else []
    command = shlex.join(["ssh", *options, *arguments_of(login), "true"])
    if NO_LOGIN in why:
        return f"{why} Install your key there (ssh-copy-id), until this works without a prompt: {command}"
    if NO_HOST_KEY in why:
        return f"{why} If it is that host's key, accept it: {command}"
    return f"{why}. This must work: {command}"
