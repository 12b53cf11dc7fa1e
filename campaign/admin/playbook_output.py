"""Output of Ansible: the current task, changes, failures by host, and the recap."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

_HEAD = re.compile(r"^(PLAY|TASK|RUNNING HANDLER|NO MORE HOSTS LEFT|PLAY RECAP)(?: \[(.*)\])? \*+$")
_WRONG = re.compile(r"^(?:fatal|failed|\[ERROR\]|ERROR!)\b|^\[ERROR\]")
_UNREACHABLE = re.compile(r"^fatal: \[(?:.+ -> )?([^\s()]+)(?:\(.*\))?\]: UNREACHABLE! =>")
_OF_A_HOST = re.compile(r"^\[ERROR\]|^[a-z]+: \[")
"""First line of a host's part of a task."""

_PREFIX = re.compile(
    "^Warning: |^Task failed: |^Failed to connect to the host via ssh: |^Data could not be sent .*? over ssh: "
)
_CHANGED = re.compile(r"^changed: |^--- ")
_FAILED = re.compile(r"^(?:fatal|failed): \[([^\s\]]+)")
_ORIGIN = re.compile(r"^Origin: (.+:\d+):\d+$")
_NO_FILE = re.compile(r"Unable to access the file '(.+)': File not found")


@dataclass
class Outcome:
    """Outcome of a playbook.

    Attributes:
        recap: Ansible's last lines, one per host.
        unreachable: host -> why it could not be reached, in one line.
        failed: (role or task, its failures host by host), in order.
        messages: lines outside of plays and tasks, such as errors about files and options.
    """

    recap: list[str] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    failed: list[tuple[str, list[str]]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def follow(lines: Iterable[str], on_task: Callable[[str], None], on_change: Callable[[list[str]], None]) -> Outcome:
    """Read the output to its end and return the outcome.

    Args:
        lines: the output, read as it is printed.
        on_task: called with the name of every task at its start.
        on_change: called with the lines of every task that has changed something or, in check mode, would.
    """
    outcome = Outcome()
    head: str | None = None
    block: list[str] = []

    def finish() -> None:
        nonlocal block
        block = _without_unreachable(block, outcome.unreachable)
        if head == "PLAY RECAP":
            outcome.recap += [line for line in block if line]
        elif head is None or not head.startswith(("TASK", "RUNNING HANDLER")):
            outcome.messages += [line for line in block if line]
        elif any(map(_WRONG.match, block)):
            outcome.failed.append((_name(head), _failures(block)))
        elif any(map(_CHANGED.match, block)):
            on_change([f"{_name(head)}:", *(line for line in block if line)])

    for raw in lines:
        line = raw.rstrip("\n")
        head_match = _HEAD.match(line)
        if head_match is None:
            block.append(line)
            continue
        finish()
        head, block = f"{head_match[1]} {head_match[2] or ''}".rstrip(), []
        if head.startswith("TASK"):
            on_task(_name(head))
    finish()
    return outcome


def _without_unreachable(block: Sequence[str], unreachable: dict[str, str]) -> list[str]:
    """Return the lines of a task without unreachable hosts, which are added to `unreachable`."""
    left: list[list[str]] = []
    for part in _parts(block):
        matched = _UNREACHABLE.match(part[0])
        if matched is None:
            left.append(part)
            continue
        unreachable.setdefault(matched[1], _why(part[1:]))
        # Ansible prints the error twice; the first time without the host.
        if left and left[-1][0].startswith("[ERROR]"):
            left.pop()
    return [line for part in left for line in part]


def _parts(block: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines of a task, host by host."""
    part: list[str] = []
    for line in block:
        if part and _OF_A_HOST.match(line):
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def _failures(block: Iterable[str]) -> list[str]:
    """Return the lines of a failed task: a message per host and where it arose; all lines if there is more."""
    parts = list(_parts(block))
    results = [(_FAILED.match(part[0]), _result(part[1:])) for part in parts]
    failures = [(host[1], result) for host, result in results if host is not None]
    if not failures or any("msg" not in result or result.keys() - {"changed", "msg"} for _, result in failures):
        return [line for part in parts for line in part if line]
    origins = [origin[1] for part in parts for line in part if (origin := _ORIGIN.match(line))]
    said = []
    for host, result in failures:
        first, *others = _without_prefix(str(result["msg"])).splitlines() or [""]
        if missing := _NO_FILE.search(first):
            # Usually the key that is to be installed on the nodes.
            first = (
                f"this machine has no file {missing[1]!r}; make it (a key: ssh-keygen -t ed25519), or name another one"
            )
        said += [f"{host}: {first}", *(f"  {line}" for line in others if line)]
    return said + [f"see {origin}" for origin in origins[-1:]]


def _result(lines: Sequence[str]) -> dict[str, Any]:
    """Return the result of a host's task, empty if it cannot be read."""
    try:
        loaded = yaml.safe_load("\n".join(lines))
    except yaml.YAMLError:
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _why(result: Sequence[str]) -> str:
    """Return the last line of a result's message without the usual prefixes."""
    *_, last = [""] + [line.strip() for line in str(_result(result).get("msg", "")).splitlines() if line.strip()]
    return _without_prefix(last) or "Ansible gives no reason"


def _without_prefix(message: str) -> str:
    while begun := _PREFIX.match(message):
        message = message[begun.end() :]
    return message


def _name(head: str) -> str:
    return head.removeprefix("TASK ").removeprefix("RUNNING HANDLER ")


_LISTED = re.compile(r"^      (\S.*?)\tTAGS: ")


def listed_tasks(output: str) -> list[str]:
    """Return the names of the tasks that `ansible-playbook --list-tasks` prints."""
    return [matched[1] for line in output.splitlines() if (matched := _LISTED.match(line))]
