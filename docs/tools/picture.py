"""Make the README's picture of a report: its top, down to the first workload's figures.

    .venv/bin/python docs/tools/picture.py results/demo/latest/report/index.html docs/images/report.png

Uses the Chromium of this machine and no network. `--theme dark` and `--width 390` show how it looks elsewhere;
`--whole` takes the whole page.
"""

import argparse
import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

MOST_BYTES = 300 * 1024
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
END_OF_FIGURES = "Math.ceil((document.querySelector('.figures') ?? document.body).getBoundingClientRect().bottom) + 24"


def picture(page: Path, width: int, theme: str, whole: bool) -> bytes:
    """A PNG of the page, in 256 colours where it would be larger than `MOST_BYTES` otherwise."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
        view.goto(page.resolve().as_uri())
        height = view.evaluate("document.body.scrollHeight" if whole else END_OF_FIGURES)
        png = view.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
        browser.close()
    if len(png) > MOST_BYTES:
        small = io.BytesIO()
        Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(small, "PNG", optimize=True)
        png = small.getvalue()
    return png


def main() -> int:
    """Write the picture; status 1 when it is too large for a README."""
    parser = argparse.ArgumentParser(description="Picture of a report for the README.")
    parser.add_argument("page", type=Path, help="index.html of a report")
    parser.add_argument("png", type=Path, help="where the picture goes")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    parser.add_argument("--whole", action="store_true", help="the whole page, of any size")
    asked = parser.parse_args()
    if not asked.page.is_file():
        parser.error(f"{asked.page}: no such file; make it with: millrace report DIR")
    png = picture(asked.page, asked.width, asked.theme, asked.whole)
    asked.png.write_bytes(png)
    sys.stdout.write(f"{asked.png}: {len(png) // 1024} KiB\n")
    return 0 if asked.whole or len(png) <= MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
