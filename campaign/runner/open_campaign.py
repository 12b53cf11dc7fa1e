"""Open a campaign: a new one from an agenda file, or an earlier one from its folder."""

import dataclasses
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agents.host.facts import gather
from campaign.agenda.agenda import agenda_of, find_agenda
from campaign.agenda.plan import Inputs, Plan, plan_of
from campaign.results.result_store import CAMPAIGN_FILE, ResultStore, new_folder, read_record
from controller.host.addresses import find_beside
from inventory.ansible_hosts import load_hosts
from inventory.documents import Document, read, to_plain
from inventory.errors import InputError, UnfitError
from inventory.reading import read_cluster


@dataclass(frozen=True)
class Opened:
    """A campaign that can be started or resumed.

    Attributes:
        plan: the plan of the whole campaign.
        folder: folder of its results; missing for a new campaign.
        record: content of `campaign.json`.
        is_new: whether the folder has to be created.
    """

    plan: Plan
    folder: Path
    record: dict[str, Any]
    is_new: bool

    def store(self) -> ResultStore:
        """Create the folder, or open the existing one; call it while the cluster is locked.

        Raises:
            DiskFullError, UnfitError: it cannot be written.
        """
        if self.is_new:
            return ResultStore.create(self.folder, self.record)
        store = ResultStore(self.folder)
        store.rewrite(self.record)
        store.drop_partial()
        return store

    def check_inputs(self, inputs: Inputs) -> None:
        """Check that earlier runs of these workloads have read the same inputs.

        Raises:
            InputError: an input differs.
        """
        store = ResultStore(self.folder)
        for run in self.plan.runs:
            if run.workload in inputs:
                store.check_inputs(run.name, {entry.name: entry.sha256 for entry in inputs[run.workload]})


def new(name_or_path: str, inventory: str | None, out: Path, meanwhile: Callable[[], object] = lambda: None) -> Opened:
    """Return a new campaign; nothing is written yet.

    Args:
        name_or_path: the agenda.
        inventory: overrides the agenda's inventory.
        out: folder of all campaigns' results.
        meanwhile: called while Ansible reads the inventory, if it is one of Ansible.

    Raises:
        InputError, UnfitError: the agenda cannot be run, see `plan_of`.
    """
    plan = _plan(name_or_path, inventory, meanwhile)
    record = {
        "agenda": plan.agenda,
        **provenance(),
        "seeds": {"campaign": plan.agenda.seed, "runs": {run.name: run.seed for run in plan.runs}},
        "cluster": plan.cluster,
        "inventory": None if plan.hosts is None else str(plan.hosts.path.absolute()),
        "resumed": [],
    }
    return Opened(plan, new_folder(out, plan.agenda.name), record, is_new=True)


def resumed(folder: Path, name_or_path: str | None, inventory: str | None, meanwhile: Callable[[], object]) -> Opened:
    """Return an earlier campaign with its original plan.

    Args:
        folder: folder with `campaign.json`.
        name_or_path: its agenda, which must be the same, if given.
        inventory: only accepted together with the agenda.
        meanwhile: called while Ansible reads the inventory, if it is one of Ansible.

    Raises:
        InputError: the folder contains no campaign, or the campaign of another agenda.
        UnfitError: this version would plan other runs.
    """
    document = read_record(folder)
    agenda, seeds, cluster, earlier = (_part(document, key) for key in ("agenda", "seeds", "cluster", "resumed"))
    hosts = document.data.get("inventory")
    # The cluster is that of the first start; addresses and SSH settings may have changed.
    plan = dataclasses.replace(
        plan_of(agenda, agenda_of(agenda), cluster), hosts=hosts and load_hosts(hosts, meanwhile)
    )
    if seeds.data.get("runs") != {run.name: run.seed for run in plan.runs}:
        raise UnfitError(f"{folder}: this version of Millrace would do other runs than those of {CAMPAIGN_FILE}")
    if name_or_path is not None:
        _check_same(folder, plan, name_or_path, _plan(name_or_path, inventory, meanwhile))
    elif inventory is not None:
        raise InputError(
            "--inventory: a resumed campaign keeps its cluster; leave the option out, or give the agenda too"
        )
    record = {**document.data, "resumed": [*earlier.data, provenance()]}
    return Opened(plan, folder.resolve(), record, is_new=False)


def _plan(name_or_path: str, inventory: str | None, meanwhile: Callable[[], object]) -> Plan:
    path = find_agenda(name_or_path)
    document = read(path)
    agenda = agenda_of(document)
    # An inventory in the agenda is relative to the agenda's folder, one on the command line to the working directory.
    if inventory is None:
        nodes = _of_agenda(document, agenda.inventory, path.parent, meanwhile)
    else:
        nodes = read_cluster(inventory, meanwhile)
    return plan_of(document, replace(agenda, inventory=inventory or agenda.inventory), nodes)


def _of_agenda(document: Document, inventory: str, beside: Path, meanwhile: Callable[[], object]) -> Document:
    try:
        path = find_beside(inventory, beside)
    except InputError as fault:
        raise document.error(("inventory",), str(fault)) from None
    return read_cluster(path, meanwhile)


def _check_same(folder: Path, plan: Plan, name_or_path: str, again: Plan) -> None:
    # The path of the same cluster may differ; compare the content.
    theirs, ours = ({**to_plain(each.agenda), "inventory": to_plain(each.cluster)} for each in (plan, again))
    different = [key for key in theirs if ours[key] != theirs[key]]
    if different:
        raise InputError(
            f"{name_or_path}: is not the agenda of {folder}, which has another {', '.join(different)}; "
            "leave the agenda out to go on with the campaign as it was begun"
        )


def _part(document: Document, key: str) -> Document:
    """Return the value of `key`, with its line numbers."""
    if key not in document.data:
        raise document.error((), f"the key {key!r} is missing; the folder of a campaign was expected")
    lines = {steps[1:]: line for steps, line in document.lines.items() if steps[:1] == (key,)}
    return Document(document.source, document.data[key], lines)


ROOT = Path(__file__).parents[2]


def provenance() -> dict[str, Any]:
    """Return `version`, `git_commit`, `git_dirty`, `host` and `started_utc` of this process."""
    commit, dirty = git_state(ROOT)
    return {
        "version": version("millrace"),
        "git_commit": commit,
        "git_dirty": dirty,
        "host": {**gather(), "python": platform.python_version()},
        "started_utc": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """Return the commit of the checkout at `root`, and whether its tracked files have changed since.

    Both are None if `root` itself is not a checkout; it may be installed inside another project's checkout.
    """
    if not (root / ".git").exists():
        return None, None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit, bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True, timeout=10, text=True)
    return done.stdout.strip()
