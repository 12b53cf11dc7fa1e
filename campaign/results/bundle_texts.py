"""Texts of a bundle: its README, and the script that draws its figures again."""

README = """\
# Results of the campaign {campaign}

This is a bundle of Millrace results: what is needed to check the figures, to draw them again, and
to repeat the measurements. It was measured from {started} on by Millrace {version}, commit {commit}.

| file | content |
|---|---|
| `agenda.json`, `cluster.json` | the experiment with all defaults filled in, and the nodes |
| `campaign.json` | both, with seeds, facts of the machine, and versions |
| `environment/` | `facts.json` of the controller's machine, and lock files of the Millrace that packed this |
| `runs/*/run.json` | outcome and metrics of every run, with its placement and the facts of its nodes |
| `runs/*/traces/*.parquet` | raw traces |
| `runs/*/answer/`, `runs/*/logs/` | answers of the topologies, and logs |
| `profiling/`, `loads/` | the same of profiling runs, with their traffic, and of calibrations of loads |
| `report/index.html` | the report |
| `report/tables/*.csv` | the data of all figures and tables |
| `report/figures/*.svg` | the figures |
| `SHA256SUMS`, `MANIFEST.json` | checksums; sizes, versions, and what is missing |

## Check it

    sha256sum --check --quiet SHA256SUMS
    millrace verify-bundle BUNDLE.tar.zst

The first line needs nothing but this folder. The second reads the archive without unpacking it, and also checks
whether all runs and traces are there.

## Draw the figures again

    python remake_figures.py FOLDER
    millrace report .

The first line draws every figure from `report/tables` into FOLDER and compares it with that of this bundle; `python`
is that of an installed Millrace. The second makes tables, figures and page from the raw traces, by Spark, and replaces
`report/`.

## Repeat it

    millrace verify-bundle --rerun BUNDLE.tar.zst

runs the agenda on this machine and says which findings hold here. For nodes that are machines, run it on your own:

    millrace run agenda.json --inventory YOURS
"""

REMAKE = '''\
"""Draw every figure of this bundle from report/tables, and compare it with that in report/figures.

    python remake_figures.py FOLDER

Needs an installed Millrace of the version in MANIFEST.json. The exit status is 1 if a figure differs.
"""

import sys
from pathlib import Path

from campaign.results.bundle_check import remade_figures
from inventory.errors import MillraceError

if len(sys.argv) != 2:
    sys.exit(__doc__)
try:
    different = remade_figures(Path(__file__).parent, Path(sys.argv[1]))
except MillraceError as fault:
    sys.exit(f"{sys.argv[0]}: {fault}")
print("\\n".join(f"differs: {name}" for name in different) or "every figure is the same, byte by byte")
sys.exit(1 if different else 0)
'''
