"""Write the JSON Schemas in `docs/schemas/`; and make the help texts of all commands for the site.

Run it after a change of the type of a file: `.venv/bin/python docs/reference/make_cli.py`
"""

import re
from pathlib import Path

import click
from click.testing import CliRunner

from campaign.commands.main import millrace
from campaign.commands.schemas import TYPES, schema_text

SCHEMAS = Path(__file__).parents[1] / "schemas"
WIDTH = 110


def help_texts() -> dict[str, str]:
    """Return the output of `--help`: of `millrace`, then of every command, which leaves out the line on `--help`."""
    names = millrace.list_commands(click.Context(millrace))
    own = {f"millrace {name}": re.sub(r"(\nOptions:)?\n  -h, --help .*", "", _help(name)) for name in names}
    return {"millrace": _help(), **own}


def sections() -> str:
    """Return the help texts in Markdown, as the site has them at the end of `cli.md`."""
    return "\n".join(f"## {name}\n\n```text\n{text}\n```\n" for name, text in help_texts().items())


def _help(*words: str) -> str:
    said = CliRunner().invoke(millrace, [*words, "--help"], prog_name="millrace", terminal_width=WIDTH).output
    return "\n".join(line.rstrip() for line in said.splitlines())


if __name__ == "__main__":
    SCHEMAS.mkdir(exist_ok=True)
    for kind in TYPES:
        (SCHEMAS / f"{kind}.json").write_text(schema_text(kind), encoding="utf-8")
