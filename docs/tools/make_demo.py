"""Write the numbers and pictures of the demo in README and docs, from a stored run.

    .venv/bin/python docs/tools/make_demo.py                            from docs/demo/ into pages and pictures
    .venv/bin/python docs/tools/make_demo.py --run results/demo/latest  store the runs of another demo before that
    .venv/bin/python docs/tools/make_demo.py --live live.json           store another `live.json`, copied during a run

`docs/demo/` has the figures of one run per scheduler (`record.json`), the topology that was placed (`demo.yml`), and
the state of a running campaign (`live.json`). Pages have texts between `<!-- demo: NAME -->` and
`<!-- end of demo -->`. A test compares pages and pictures with what this program makes.
"""

import argparse
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from click.testing import CliRunner
from rich.console import Console

from analysis.records.campaign import load_campaign
from campaign.commands.main import millrace
from campaign.display.top_view import screen
from campaign.results.live_file import CampaignCondition, LiveRecord, Watched
from inventory.documents import dump_json
from inventory.times import NS

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "demo"
RECORD, LIVE, TOPOLOGY = STORED / "record.json", STORED / "live.json", STORED / "demo.yml"
IMAGES = ROOT / "docs" / "images"
PAGES = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
WORKLOAD, SCHEDULERS = "wordcount", ("even", "top-storm")
WIDTH, HEIGHT = 118, 30
NODES = {1: "one node", 2: "two nodes", 3: "three nodes", 4: "four nodes", 5: "all five nodes"}


def store_runs(folder: Path) -> None:
    """Store the figures of the first run of each scheduler of a finished demo.

    Raises:
        SystemExit: there is none that counts.
    """
    campaign = load_campaign(folder)
    runs = {}
    for scheduler in SCHEDULERS:
        counted = {(run.workload, run.scheduler): run for run in reversed(campaign.counted)}
        if (WORKLOAD, scheduler) not in counted:
            raise SystemExit(f"{folder}: no run of {WORKLOAD} by {scheduler} counts")
        first = counted[WORKLOAD, scheduler]
        run = json.loads((first.folder / "run.json").read_text(encoding="utf-8"))
        placed = run["placement"]["topologies"][WORKLOAD]["assignments"]
        runs[scheduler] = {
            "run": first.id,
            "started_utc": run["times"]["started_utc"],
            "measured_s": (run["times"]["measure_end_ns"] - run["times"]["measure_start_ns"]) / NS,
            "hops": run["measured"]["hops"],
            "places": {each["executor"]: f"{each['node']}/{each['slot']}" for each in placed},
        }
    RECORD.write_text(dump_json({"version": campaign.file.version, "runs": runs}), encoding="utf-8")


def store_live(path: Path) -> None:
    """Store the state of a running campaign, without what identifies the machine."""
    live = json.loads(path.read_text(encoding="utf-8"))
    live["process"] |= {"pid": 1, "start": 0, "boot": "", "space": 0}
    LIVE.write_text(dump_json(live), encoding="utf-8")


def pictures() -> dict[Path, str]:
    """Return the pictures: placements as `millrace place` draws them, and `millrace top`.

    Raises:
        RuntimeError: a placement differs from that of the stored run.
    """
    made = {IMAGES / "top.svg": _top()}
    with TemporaryDirectory() as folder:
        for document in _placements(folder):
            scheduler = document["scheduler"]
            placed = document["topologies"][WORKLOAD]["assignments"]
            places = {each["executor"]: f"{each['node']}/{each['slot']}" for each in placed}
            if places != _runs()[scheduler]["places"]:
                raise RuntimeError(f"{scheduler} places {TOPOLOGY} as the stored run did not: store another run")
            drawn = Path(folder, f"{scheduler}.svg").read_text(encoding="utf-8")
            made[IMAGES / f"{WORKLOAD}-{scheduler}.svg"] = drawn
    return made


def texts() -> dict[str, str]:
    """Return the texts by name."""
    between, alls = {}, {}
    for scheduler, run in _runs().items():
        hops = run["hops"]
        between[scheduler] = hops["inter_node"] / run["measured_s"]
        alls[scheduler] = sum(hops.values()) / run["measured_s"]
    shares = {
        scheduler: f"**{between[scheduler] / alls[scheduler]:.0%}**".replace("%", " %") for scheduler in SCHEDULERS
    }
    with TemporaryDirectory() as folder:
        costs = {each["scheduler"]: each["cost"] for each in _placements(folder)}
    pairs = {scheduler: cost["inter_node_edges"] for scheduler, cost in costs.items()}
    nodes = {scheduler: NODES[cost["nodes_used"]] for scheduler, cost in costs.items()}
    images = {
        scheduler: f"![Word count placed by {scheduler}: {nodes[scheduler]} are used]"
        f"(docs/images/{WORKLOAD}-{scheduler}.svg)"
        for scheduler in SCHEDULERS
    }
    even, top = SCHEDULERS
    shares_text = [
        (
            "**Why placement matters.** The demo runs one word count under two placements, at the same rate and with "
            f"the same answer. Storm's `{even}`"
        ),
        f"sends {shares[even]} of all tuples from node to node, `{top}` {shares[top]}:",
        "",
        (
            f"| `{even}`: {between[even]:,.0f} of {alls[even]:,.0f} tuples/s between nodes "
            f"| `{top}`: {between[top]:,.0f} of {alls[top]:,.0f} |"
        ),
        "|---|---|",
        f"| {images[even]} | {images[top]} |",
        "",
    ]
    return {
        "shares": "".join(f"{line}\n" for line in shares_text),
        "pairs": (
            f"Even uses {nodes[even]}, and {pairs[even]} pairs of executors communicate between nodes. "
            f"TOP-Storm uses {nodes[top]}, and {pairs[top]} pairs communicate between them.\n"
        ),
        "topology": f"```yaml\n{TOPOLOGY.read_text(encoding='utf-8')}```\n",
    }


def filled(page: str, written: Mapping[str, str]) -> str:
    """Return a page with the texts at their places.

    Raises:
        KeyError: a place names no text.
    """
    return re.sub(
        r"(<!-- demo: (\w+) -->\n).*?(?=<!-- end of demo -->)",
        lambda found: f"{found[1]}{written[found[2]]}",
        page,
        flags=re.DOTALL,
    )


def _runs() -> dict[str, dict[str, Any]]:
    runs: dict[str, dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))["runs"]
    return runs


def _placements(folder: str) -> list[dict[str, Any]]:
    """Place the demo's word count as `millrace place --compare` does, with pictures in `folder`."""
    words = ["place", "--cluster", "loopback", "--topology", str(TOPOLOGY), "--compare", ",".join(SCHEDULERS)]
    done = CliRunner().invoke(millrace, [*words, "--pictures", folder, "--json"])
    if done.exit_code:
        raise RuntimeError(f"millrace {' '.join(words)}: {done.output}")
    documents: list[dict[str, Any]] = json.loads(done.stdout)
    return documents


def _top() -> str:
    live = msgspec.json.decode(LIVE.read_bytes(), type=LiveRecord)
    watched = Watched(Path("results/demo/latest"), CampaignCondition.RUNNING, live, 0.0)
    # Colours must not depend on the terminal of whoever makes the picture.
    console = Console(
        record=True,
        width=WIDTH,
        height=HEIGHT,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
    )
    console.print(screen(watched, "r", WIDTH, HEIGHT))
    # A picture loads nothing from elsewhere: the reader's own fixed-width font will do.
    drawn = console.export_svg(title="millrace top")
    return re.sub(r"@font-face {.*?}\s*|<!--.*?-->\s*", "", drawn, flags=re.DOTALL).replace("Fira Code", "monospace")


def main() -> None:
    """Store what was given, and write pages and pictures."""
    parser = argparse.ArgumentParser(description="Numbers and pictures of the demo.")
    parser.add_argument("--run", type=Path, metavar="DIR", help="store the runs of a finished demo first")
    parser.add_argument("--live", type=Path, metavar="FILE", help="store a live.json of a running demo first")
    asked = parser.parse_args()
    if asked.run is not None:
        store_runs(asked.run)
    if asked.live is not None:
        store_live(asked.live)
    for path, drawn in pictures().items():
        path.write_text(drawn, encoding="utf-8")
    written = texts()
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), written), encoding="utf-8")


if __name__ == "__main__":
    main()
