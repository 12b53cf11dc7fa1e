"""Commands for other stream engines: `engine` installs one, `load` makes what is replayed there."""

from pathlib import Path

import click

from campaign.commands.options import output_option, run_argument, run_option, write_document
from campaign.display.terminal import Settings
from inventory.errors import InputError, nearest
from inventory.foreign import printable


@click.command("engine")
@click.argument("name", required=False)
@click.pass_obj
def engine_command(settings: Settings, name: str | None) -> None:
    """Install a stream engine, or list the engines.

    NAME is the engine's name in agendas (engine: storm). Its jars are fetched by this machine's Maven and compared with
    locked checksums, and Millrace's programs for it are compiled. An interrupted installation continues where it
    stopped; nothing is installed by halves.

    Example: millrace engine storm
    """
    from engines.installation import installed
    from engines.selection import ENGINES, install_engine

    if name is None:
        for each, kind in ENGINES.items():
            engine = installed(kind.jars)
            click.echo(
                f"{each:<8}{kind.title}: {'not installed' if engine is None else f'installed in {engine.folder}'}"
            )
        return
    if name not in ENGINES:
        raise InputError(f"there is no engine {name!r}{nearest(name, ENGINES)}")

    def report(line: str) -> None:
        if not settings.quiet:
            click.echo(printable(line), err=True)

    click.echo(printable(f"installed: {install_engine(name, report)}"))


LOAD_EXAMPLE = """\b
Examples:
  millrace load results/demo/latest --run 001-wordcount-even-r1 -o wordcount.json
  # in an agenda: {name: replay, params: {load: wordcount.json}, rate: ...}
"""


@click.command("load", epilog=LOAD_EXAMPLE)
@run_argument
@run_option
@output_option
def load_command(folder: Path, run: str | None, output: Path | None) -> None:
    """Write the load document of a finished run.

    It has the CPU, the selectivities and the bytes of every component in the measured interval, and is what the
    workload replay does on any engine. CPU is given in operations, whose time is measured on this machine first; an
    engine must be installed. DIR is the folder of the run, or of its campaign, or `latest`.
    """
    from campaign.results.run_load import load_of_run
    from campaign.results.selected_run import select_run
    from engines.programs import operation_ns
    from engines.selection import any_programs

    selected = select_run(folder, run)
    finished = selected.finished()
    write_document(load_of_run(finished, selected.campaign, operation_ns(any_programs())), output)
