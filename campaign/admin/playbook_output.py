"""Parser for the output of ansible-playbook: current task, failures and recap."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

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


@dataclass
class Outcome:
    """Outcome of a playbook.

    Attributes:
        recap: Ansible's last lines, one per host.
        unreachable: host -> why it could not be reached, in one line.
        failed: (role or task, output of its failure), in order.
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
            outcome.failed.append((_name(head), [line for line in block if line]))
        elif any(map(_CHANGED.match, block)):
            on_change([f"{_name(head)}:", *(line for line in block if line)])

    for raw in lines:
        line = raw.rstrip("\n")
        found = _HEAD.match(line)
        if found is None:
            block.append(line)
            continue
        finish()
        head, block = f"{found[1]} {found[2] or ''}".rstrip(), []
        if head.startswith("TASK"):
            on_task(_name(head))
    finish()
    return outcome


def _without_unreachable(block: Sequence[str], unreachable: dict[str, str]) -> list[str]:
    """Return the lines of a task without unreachable hosts, which are added to `unreachable`."""
    left: list[list[str]] = []
    for part in _parts(block):
        found = _UNREACHABLE.match(part[0])
        if found is None:
            left.append(part)
            continue
        unreachable.setdefault(found[1], _why(part[1:]))
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


def _why(result: Sequence[str]) -> str:
    """Return the last line of a result's message without the usual prefixes."""
    try:
        messages = str(yaml.safe_load("\n".join(result))["msg"])
    except (yaml.YAMLError, TypeError, KeyError):
        return "Ansible gives no reason"
    *_, last = [""] + [line.strip() for line in messages.splitlines() if line.strip()]
    while begun := _PREFIX.match(last):
        last = last[begun.end() :]
    return last or "Ansible gives no reason"


def _name(head: str) -> str:
    return head.removeprefix("TASK ").removeprefix("RUNNING HANDLER ")
