"""An Ansible inventory as Ansible itself lists it, and the file and line that each of its variables comes from.

`ansible-inventory --list` runs in a separate process. Ansible handles files, folders, `group_vars`, `host_vars`, INI,
scripts and plug-ins. Templates (`{{ ... }}`) are resolved only by plays, so they appear here as written.

Ansible does not report origins, so the files are searched in order of precedence: the host's own variables, then those
of its groups. Variables found in no file (scripts, plug-ins) are attributed to the inventory as a whole.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from inventory.errors import InputError, UnfitError
from inventory.parsing import Steps, lines_of

CONFIGURATION = Path(__file__).parent.parent / "ansible.cfg"
"""Millrace's settings for Ansible; settings in the user's environment take precedence."""

FACTS = "facts"
"""Folder with the hosts' facts, beside an inventory's file; not part of the inventory itself."""

PATIENCE_S = 120


@dataclass(frozen=True)
class Listing:
    """Contents of an inventory as listed by Ansible.

    Attributes:
        path: the inventory's file or folder.
        variables: host -> its variables, those of its groups included; templates are as written.
        hosts: group -> its direct hosts.
        children: group -> its direct child groups.
    """

    path: Path
    variables: Mapping[str, Mapping[str, Any]]
    hosts: Mapping[str, tuple[str, ...]]
    children: Mapping[str, tuple[str, ...]]

    def members(self, group: str) -> tuple[str, ...]:
        """Return the hosts of a group and of its child groups, in the inventory's order."""
        return tuple(dict.fromkeys(host for each in self._below(group) for host in self.hosts.get(each, ())))

    def groups(self, host: str) -> tuple[str, ...]:
        """Return the groups of a host, innermost first; their variables take precedence."""
        around = [group for group in self.children if host in self.members(group)]
        return tuple(sorted(around, key=lambda group: (len(tuple(self._below(group))), group)))

    @property
    def folder(self) -> Path:
        """Folder of `group_vars`, `host_vars` and facts."""
        return self.path if self.path.is_dir() else self.path.parent

    def _below(self, group: str) -> Iterator[str]:
        yield group
        for child in self.children.get(group, ()):
            yield from self._below(child)


_VALUED = ("-e", "-i", "--extra-vars", "--inventory", "--inventory-file", "--vault-id", "--vault-password-file",
           "--vault-pass-file")  # fmt: skip
_ALONE = ("-J", "--ask-vault-password", "--ask-vault-pass")
_JOINED = ("-e", "-i", *(f"{name}=" for name in _VALUED if name.startswith("--")))


def listing_options(options: Sequence[str]) -> list[str]:
    """Return those of a playbook's options that change what its inventory holds: vaults, variables, inventories.

    Options that leave out hosts or tasks are left out: links of a host concern others, too.
    """
    listing: list[str] = []
    left = iter(options)
    for option in left:
        if option in _VALUED:
            listing += [option, *values] if (values := list(islice(left, 1))) else []
        elif option in _ALONE or option.startswith(_JOINED):
            listing.append(option)
    return listing


def ansible_inventory(
    path: Path, meanwhile: Callable[[], object] = lambda: None, options: Sequence[str] = ()
) -> Listing:
    """Return the inventory at `path` as listed by Ansible.

    Args:
        path: a file or a folder.
        options: those of `listing_options`.
        meanwhile: called while Ansible reads, which takes half a second on another processor.

    Raises:
        InputError: Ansible cannot read it, or finds no host in it.
        UnfitError: Ansible is missing.
    """
    if find_spec("ansible.cli") is None:
        raise UnfitError("Ansible is missing: install millrace with the extra 'controller'")
    environment = {
        **({"ANSIBLE_CONFIG": str(CONFIGURATION)} if CONFIGURATION.is_file() else {}),
        **os.environ,
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_INVENTORY_IGNORE_REGEX": f"^{FACTS}$",
        "ANSIBLE_NOCOLOR": "true",
    }
    # Not by name: PATH may contain another Ansible, and the environment need not be activated.
    command = [sys.executable, "-P", "-m", "ansible", "inventory", "-i", str(path.absolute()), "--list", *options]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ansible:
        try:
            meanwhile()
            listed, said = ansible.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise InputError(f"{path}: Ansible has not read it within {PATIENCE_S} s") from None
        finally:
            ansible.kill()
    if ansible.returncode != 0:
        raise InputError(_explained(path, said.decode(errors="replace")))
    try:
        groups = json.loads(listed)
    except (ValueError, RecursionError) as fault:
        raise InputError(f"{path}: what Ansible lists of it cannot be read: {fault}") from None
    variables = groups.pop("_meta", {}).get("hostvars", {})
    hosts = {group: tuple(parts.get("hosts", ())) for group, parts in groups.items()}
    children = {group: tuple(parts.get("children", ())) for group, parts in groups.items()}
    named = dict.fromkeys(host for members in hosts.values() for host in members)
    if not named:
        raise InputError(f"{path}: names no host; an Ansible inventory or a cluster file was expected")
    return Listing(path, {host: variables.get(host, {}) for host in named}, hosts, children)


def _explained(path: Path, said: str) -> str:
    """Return the reason given by Ansible, and its place; Ansible tries several readers, each with an error."""
    cause = re.search(r"(?:parsing failed|Failed to parse inventory|ERROR\]): (.+)", said)
    place = re.search(r"Origin: (/[^\n]*?:\d+):\d+$", said, re.MULTILINE)
    words = cause.group(1).strip() if cause else "it gives no reason"
    if _NO_SECRETS in words:
        words += " Name the password's file by ANSIBLE_VAULT_PASSWORD_FILE, or after -- by --vault-password-file."
    return f"{place.group(1) if place else path}: Ansible cannot read it: {words}"


_NO_SECRETS = "no vault secrets found"

_NAMES = ("", ".yml", ".yaml", ".json")
_NO_INVENTORY = {"host_vars", "group_vars", FACTS}


class Origins:
    """Files of one inventory."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    def where(self, host: str, variable: str) -> str:
        """Return `file:line` of the effective value for `host`, else of the host, else the inventory."""
        of_variable = (*self._set(host, variable), *self._mentioned(variable)) if variable else ()
        for place in (*of_variable, *self._mentioned(host)):
            return place
        return str(self._listing.path)

    def _set(self, host: str, variable: str) -> Iterator[str]:
        groups = self._listing.groups(host)
        yield from self._in_folder("host_vars", host, variable)
        yield from self._in_inventory((host, variable))
        for group in groups:
            yield from self._in_folder("group_vars", group, variable)
        for group in groups:
            yield from self._in_inventory((group, "vars", variable))

    def _in_folder(self, kind: str, name: str, variable: str) -> Iterator[str]:
        for suffix in _NAMES:
            path = self._listing.folder / kind / f"{name}{suffix}"
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            for file in files:
                line = _lines(file).get((variable,))
                if line is not None:
                    yield f"{file}:{line}"

    def _in_inventory(self, ending: Steps) -> Iterator[str]:
        for file, lines in self._sources.items():
            for steps, line in lines.items():
                if steps[-len(ending) :] == ending:
                    yield f"{file}:{line}"

    def _mentioned(self, word: str) -> Iterator[str]:
        """Yield lines that contain the word, for inventories that are not YAML."""
        pattern = re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])")
        for file in self._sources:
            for number, line in enumerate(_text(file).splitlines(), 1):
                if pattern.search(line):
                    yield f"{file}:{number}"

    @cached_property
    def _sources(self) -> dict[Path, dict[Steps, int]]:
        """Files of the inventory, with the lines of their values."""
        path = self._listing.path
        files = [path]
        if path.is_dir():
            inside = (file for file in sorted(path.rglob("*")) if file.is_file())
            files = [file for file in inside if not _NO_INVENTORY & set(file.relative_to(path).parts)]
        return {file: _lines(file) for file in files}


def _lines(file: Path) -> dict[Steps, int]:
    text = _text(file)
    return lines_of(text, str(file)) if text else {}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
