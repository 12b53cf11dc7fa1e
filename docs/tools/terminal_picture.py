"""Make the README's picture of `millrace top` from the `live.json` of a campaign that was running when it was copied.

.venv/bin/python docs/tools/terminal_picture.py live.json docs/images/top.svg
"""

import argparse
import io
import re
import sys
from pathlib import Path

import msgspec
from rich.console import Console

from campaign.display.top_view import screen
from campaign.results.live_file import CampaignCondition, LiveRecord, Watched

WIDTH, HEIGHT = 118, 30


def main() -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(description="Picture of `millrace top` for the README.")
    parser.add_argument("live", type=Path, help="live.json of a running campaign")
    parser.add_argument("svg", type=Path, help="where the picture goes")
    asked = parser.parse_args()
    live = msgspec.json.decode(asked.live.read_bytes(), type=LiveRecord)
    watched = Watched(Path("results/demo/latest"), CampaignCondition.RUNNING, live, 0.0)
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True)
    console.print(screen(watched, "r", WIDTH, HEIGHT))
    # A picture loads nothing from elsewhere: the reader's own fixed-width font will do.
    drawn = console.export_svg(title="millrace top")
    picture = re.sub(r"@font-face {.*?}\s*|<!--.*?-->\s*", "", drawn, flags=re.DOTALL).replace("Fira Code", "monospace")
    asked.svg.write_text(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
