"""What ansible-playbook prints, taken apart: how far it is, what went wrong, and the recap."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_HEAD = re.compile(r"^(PLAY|TASK|RUNNING HANDLER|NO MORE HOSTS LEFT|PLAY RECAP)(?: \[(.*)\])? \*+$")
_WRONG = re.compile(r"^(?:fatal|failed|\[ERROR\]|ERROR!)\b|^\[ERROR\]")
_CHANGED = re.compile(r"^changed: |^--- ")


@dataclass
class Outcome:
    """What a playbook did.

    Attributes:
        recap: Ansible's last lines, a host each.
        failed: role or task -> what Ansible said when it failed, in order.
        said: everything outside of plays and tasks, which is where Ansible complains of files and options.
    """

    recap: list[str] = field(default_factory=list)
    failed: list[tuple[str, list[str]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def follow(lines: Iterable[str], on_task: Callable[[str], None], on_change: Callable[[list[str]], None]) -> Outcome:
    """Read the output to its end.

    Args:
        lines: as they come.
        on_task: gets the name of every task as it starts.
        on_change: gets the lines of every task that has changed something or, in check mode, would.
    """
    outcome = Outcome()
    head: str | None = None
    block: list[str] = []

    def finish() -> None:
        if head == "PLAY RECAP":
            outcome.recap += [line for line in block if line]
        elif head is None or not head.startswith(("TASK", "RUNNING HANDLER")):
            outcome.said += [line for line in block if line]
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


def _name(head: str) -> str:
    return head.removeprefix("TASK ").removeprefix("RUNNING HANDLER ")
