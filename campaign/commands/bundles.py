"""Commands that make and check bundles of results: `bundle` and `verify-bundle`."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from campaign.commands.options import output_file
from campaign.display.terminal import Settings, progress_bar
from inventory.errors import UnfitError
from inventory.foreign import printable

if TYPE_CHECKING:
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
"""


@click.command("verify-bundle", epilog=VERIFY_EXAMPLE)
@click.argument("bundle", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--rerun",
    is_flag=True,
    help="Then run its agenda on this machine, with results in results/, and print which findings hold here.",
)
@click.pass_obj
def verify_bundle_command(settings: Settings, bundle: Path, rerun: bool) -> int:
    """Check the checksums and completeness of a bundle.

    Nothing is written. A bundle that was cut or altered, or has anything but the plain files of its manifest, is
    refused. The exit status is 1 if runs or traces are missing, as the bundle itself says.
    """
    if not rerun:
        return INCOMPLETE if _check(settings, bundle, None).manifest.missing else 0
    with tempfile.TemporaryDirectory(prefix="millrace-") as name:
        folder = Path(name)
        checked = _check(settings, bundle, folder)
        return _run_again(settings, bundle, checked, folder)


def _check(settings: Settings, bundle: Path, into: Path | None) -> "CheckedBundle":
    """Check a bundle and print what it is."""
    from campaign.results.bundle_check import check_bundle

    with progress_bar("verifying", settings.quiet, settings.color) as show_progress:
        checked = check_bundle(bundle, show_progress, into)
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
    return checked


def _run_again(settings: Settings, bundle: Path, checked: "CheckedBundle", folder: Path) -> int:
    """Run the agenda of a bundle that was unpacked into `folder`, and print which findings hold.

    Raises:
        UnfitError: its nodes are machines that only their own inventory describes.
    """
    from analysis.results import load_campaign
    from campaign.commands.run import RUN_FAILED, run_campaign
    from campaign.display.findings import repeated_text
    from campaign.results.repeated import repeated_findings
    from inventory.reading import shipped_inventories

    before = load_campaign(folder)
    inventory = str(folder / "cluster.json")
    if checked.record.inventory is not None:
        inventory = str(checked.record.agenda.get("inventory"))
        if inventory not in shipped_inventories():
            raise UnfitError(
                f"{bundle}: its nodes are machines of an Ansible inventory, which is not in the bundle; unpack it and "
                "run its agenda on yours: millrace run agenda.json --inventory YOURS"
            )
    status, made = run_campaign(
        settings, str(folder / "agenda.json"), inventory, Path("results"), None, None, False, None, False
    )
    if made is not None and status in (0, RUN_FAILED):
        click.echo(repeated_text(repeated_findings(before, load_campaign(made)), settings.color))
    return status or (INCOMPLETE if checked.manifest.missing else 0)
