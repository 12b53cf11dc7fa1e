"""Commands that make and check bundles of results: `bundle` and `verify-bundle`."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from campaign.commands.options import output_file
from campaign.display.terminal import Settings, progress_bar
from inventory.errors import InputError, UnfitError
from inventory.foreign import printable
from inventory.plugins import is_built_in, plugins

if TYPE_CHECKING:
    from campaign.agenda.agenda import Agenda
    from campaign.results.bundle_check import CheckedBundle

INCOMPLETE = 1
"""Exit status for a bundle that lacks runs or traces."""

BUNDLE_EXAMPLE = """\b
Example:
  millrace bundle results/demo/latest --out demo.tar.zst
"""


@click.command("bundle", epilog=BUNDLE_EXAMPLE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="FILE.tar.zst",
    required=True,
    type=click.Path(path_type=Path),
    help="The bundle; replaced once it is complete.",
)
@click.pass_obj
def bundle_command(settings: Settings, folder: Path, out: Path) -> None:
    """Pack the results of a campaign for artefact evaluation.

    The bundle has the agenda, lock files, facts, raw traces, the report with the data of its figures, a script that
    draws every figure again, checksums and a README. DIR is the folder that contains campaign.json, or `latest` for the
    newest campaign in results/; its report must have been built.
    """
    from campaign.results.bundle import write_bundle
    from campaign.results.live_file import find_campaign

    with progress_bar("bundling", settings.quiet, settings.color) as show_progress:
        manifest = write_bundle(find_campaign(folder), output_file(out, "--out"), show_progress)
    for path in manifest.missing:
        click.echo(printable(f"millrace: missing in the results: {path}"), err=True)
    click.echo(printable(f"bundle: {out}, {len(manifest.files)} files, {manifest.total_bytes / 1e6:,.1f} MB unpacked"))


VERIFY_EXAMPLE = """\b
Examples:
  millrace verify-bundle demo.tar.zst
  millrace verify-bundle --rerun demo.tar.zst
  millrace verify-bundle --rerun --trust demo.tar.zst
"""


@click.command("verify-bundle", epilog=VERIFY_EXAMPLE)
@click.argument("bundle", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--rerun",
    is_flag=True,
    help="Then run its agenda on this machine, with results in results/, and print which findings hold here.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="With --rerun: also if the agenda needs other packages' plug-ins, other inventories or files of this machine.",
)
@click.pass_obj
def verify_bundle_command(settings: Settings, bundle: Path, rerun: bool, trust: bool) -> int:
    """Check the checksums and completeness of a bundle.

    Nothing is written. A bundle that was cut or altered, or has anything but the plain files of its manifest, is
    refused. The exit status is 1 if runs or traces are missing, as the bundle itself says. Before a rerun, what it
    would start is printed.
    """
    if trust and not rerun:
        raise InputError("--trust: has no effect without --rerun")
    from campaign.results.bundle_check import check_bundle

    with progress_bar("verifying", settings.quiet, settings.color) as show_progress:
        checked = check_bundle(bundle, show_progress)
    manifest = checked.manifest
    made_by = f"Millrace {manifest.version or 'unknown'}, commit {manifest.git_commit or 'unknown'}"
    for line in (
        f"campaign: {manifest.campaign}, {checked.runs} runs, made by {made_by}",
        f"results version: {manifest.results_version}",
        f"checksums: {len(manifest.files)} files, {manifest.total_bytes / 1e6:,.1f} MB, as in the manifest",
        f"manifest: SHA-256 {checked.sha256}",
        *(f"missing: {path}" for path in manifest.missing),
    ):
        click.echo(printable(line))
    if not rerun:
        return INCOMPLETE if manifest.missing else 0
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        with progress_bar("unpacking", settings.quiet, settings.color) as show_progress:
            checked = check_bundle(bundle, show_progress, Path(folder))
        return _run_again(settings, bundle, checked, Path(folder), trust)


def _run_again(settings: Settings, bundle: Path, checked: "CheckedBundle", folder: Path, trust: bool) -> int:
    """Run the agenda of a bundle that was unpacked into `folder`, and print which findings hold.

    Raises:
        InputError: its agenda or its cluster is invalid, or needs more than Millrace brings, without `trust`.
        UnfitError: its nodes are machines that only their own inventory describes.
    """
    from analysis.page.compared_tables import repeated_findings
    from analysis.records.campaign import load_campaign
    from campaign.agenda.agenda import agenda_of
    from campaign.commands.run import RUN_FAILED, run_campaign
    from campaign.display.findings import repeated_text
    from inventory.cluster import cluster_from_document
    from inventory.documents import read
    from inventory.reading import shipped_inventories

    before = load_campaign(folder)
    agenda = agenda_of(read(folder / "agenda.json")).value
    inventory = str(folder / "cluster.json")
    # Any other file would be an inventory of Ansible, whose templates may run programs.
    nodes = cluster_from_document(read(folder / "cluster.json")).value.nodes
    hosts = f"processes of this host as nodes {', '.join(node.id for node in nodes)}"
    if checked.record.inventory is not None:
        inventory = str(checked.record.agenda.get("inventory"))
        if inventory not in shipped_inventories():
            raise UnfitError(
                f"{bundle}: its nodes are machines of an Ansible inventory, which is not in the bundle; unpack it and "
                "run its agenda on yours: millrace run agenda.json --inventory YOURS"
            )
        hosts = f"the inventory {inventory}"
    engines = dict.fromkeys((agenda.engine, *agenda.factors.get("engine", ())))
    parts = [f"engine {', '.join(map(str, engines))}"]
    parts += [f"{group.partition('.')[2]} {', '.join(names) or 'none'}" for group, names in _plugins_of(agenda).items()]
    click.echo(printable(f"would run: {'; '.join(parts)}; on {hosts}"))
    needed = list(_needed(agenda))
    if needed and not trust:
        raise InputError(f"{bundle}: its agenda needs {', '.join(needed)}; --trust runs it all the same")
    status, made = run_campaign(
        settings, str(folder / "agenda.json"), inventory, Path("results"), None, None, False, None, False
    )
    if made is not None and status in (0, RUN_FAILED):
        click.echo(repeated_text(repeated_findings(before, load_campaign(made)), settings.color))
    return status or (INCOMPLETE if checked.manifest.missing else 0)


def _plugins_of(agenda: "Agenda") -> Mapping[str, list[str]]:
    """Return group of plug-ins -> names of those that an agenda uses."""
    return {
        "millrace.workloads": list(dict.fromkeys(entry.name for entry in agenda.workloads)),
        "millrace.schedulers": list(dict.fromkeys(agenda.scheduler_named.values())),
        "millrace.sensors": list(agenda.sensors),
    }


def _needed(agenda: "Agenda") -> Iterator[str]:
    """Yield what an agenda needs from this machine that Millrace does not bring."""
    from inventory.documents import to_plain
    from inventory.reading import shipped_inventories

    for group, names in _plugins_of(agenda).items():
        for name in names:
            if not is_built_in(plugins(group)[name]):
                yield f"the {group.partition('.')[2].removesuffix('s')} {name} of another package"
    inventories = [str(value) for value in agenda.factors.get("inventory", ())]
    for name in inventories:
        if name not in shipped_inventories():
            yield f"the inventory {name}"
    plain = to_plain(agenda)
    for value in _texts([plain["workloads"], plain["schedulers"], plain["profile"], plain["report"], plain["factors"]]):
        if value not in inventories and ("/" in value or os.path.exists(value)):  # noqa: PTH110 - any text is valid
            yield f"the file {value}"


def _texts(value: Any) -> Iterator[str]:
    """Yield all strings in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
