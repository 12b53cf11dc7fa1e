"""Build the documentation site, as `./run docs` does: the pages of docs/index.md and the files that they link to.

Pages keep their places, so that a link leads to the same file in the checkout and on the site. A dead link, a missing
heading or picture, and anything that a page would load from another host end the build with status 1.
"""

import json
import re
import runpy
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "docs"
SITE = BUILD / "site"
INDEX = ROOT / "docs" / "index.md"
START = ROOT / "README.md"
COMMANDS = ROOT / "docs" / "reference" / "cli.md"
LINK = re.compile(r"\[([^][]*)\]\(([^)#\s:]+)(?:#[^)]*)?\)")
COLOR = re.compile(r"\x1b\[[\d;]*m")


def links(text: str) -> list[tuple[str, str]]:
    """Return the words and the target of each link to a file."""
    return LINK.findall(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def navigation() -> dict[str, dict[str, Path]]:
    """Return section -> title -> page, as the index lists them."""
    sections = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", INDEX.read_text(), re.DOTALL | re.MULTILINE)
    return {
        heading: {title.replace("`", ""): (INDEX.parent / target).resolve() for title, target in links(text)}
        for heading, text in sections
    }


def copy(page: Path) -> None:
    """Copy a page, or a style sheet, and the files that it links to; other pages have to be in the index."""
    files = [(page.parent / target).resolve() for _, target in links(page.read_text())]
    for file in [page, *(file for file in files if file.suffix != ".md" and file.is_file())]:
        place = BUILD / "pages" / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)


def configuration(sections: dict[str, dict[str, Path]]) -> str:
    """Return the generator's configuration with the navigation."""

    def entry(title: str, value: str) -> str:
        return f"{{{json.dumps(title)} = {value}}}"

    def page(title: str, path: Path) -> str:
        return entry(title, json.dumps(path.relative_to(ROOT).as_posix()))

    listed = [page("Millrace", START), page("All pages", INDEX)]
    for heading, pages in sections.items():
        listed.append(entry(heading, f"[{', '.join(page(*each) for each in pages.items())}]"))
    text = (Path(__file__).parent / "zensical.toml").read_text()
    return text.replace("nav = []", f"nav = [{', '.join(listed)}]")


class Page(HTMLParser):
    """Identifiers and addresses in a page of the site; `loads` are those that a browser fetches by itself."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        self.links += [found[name] for name in ("href", "src") if name in found]
        loads = "href" if tag == "link" and found.get("rel") != "canonical" else "src"
        self.loads += [found[loads]] if loads in found else []


def faults(site: Path) -> list[str]:
    """Return what is wrong with the links of a built site: the generator itself checks only those between pages."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {address}" for address in page.loads if urlsplit(address).netloc]
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name}: {address} is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                found.append(f"{name}: {address} has no such heading")
    return found


def main() -> int:
    """Build the site and show where it is."""
    shutil.rmtree(BUILD, ignore_errors=True)
    sections = navigation()
    for page in [START, INDEX, *(page for pages in sections.values() for page in pages.values())]:
        if not page.is_file():
            sys.exit(f"{INDEX.relative_to(ROOT)}: {page.relative_to(ROOT)} is not there")
        copy(page)
    copy(ROOT / "docs" / "tools" / "site.css")
    with (BUILD / "pages" / COMMANDS.relative_to(ROOT)).open("a") as page:
        page.write("\n" + runpy.run_path(str(COMMANDS.with_name("make_cli.py")))["sections"]())
    (BUILD / "zensical.toml").write_text(configuration(sections))
    command = (sys.executable, "-m", "zensical", "build", "--strict")
    done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, check=False)
    if done.returncode:
        said = COLOR.sub("", done.stdout + done.stderr)
        sys.stderr.write(said.split("Traceback")[0] if "because --strict" in said else said)
        return 1
    if wrong := faults(SITE):
        sys.stderr.write("\n".join([*wrong, ""]))
        return 1
    site = SITE.relative_to(ROOT)
    count = len(list(SITE.rglob("*.html")))
    sys.stdout.write(
        f"{count} pages: open {site}/index.html, or, with search, http://127.0.0.1:8000 after\n"
        f"    python3 -m http.server --bind 127.0.0.1 --directory {site}\n"
    )
    return 0


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("usage: ./run docs")
    sys.exit(main())
