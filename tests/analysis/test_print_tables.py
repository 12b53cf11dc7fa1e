"""Tables of comparisons as LaTeX and Markdown."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from analysis.page.build import COLUMNS
from analysis.page.print_tables import PRINTED, latex, markdown, write_printed
from analysis.statistics.metrics import Row, Rows

TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2100, exclude_categories=["Cc", "Zl", "Zp"]), max_size=12
)
TABLES = st.integers(1, 5).flatmap(lambda width: st.lists(st.lists(TEXT, min_size=width, max_size=width), min_size=2))


def row(table: str, **changes: object) -> Row:
    defaults = dict.fromkeys(COLUMNS[table]) | {"workload": "words", "scheduler": "top_storm", "unit": "tuples/s"}
    return defaults | {"metric": "inter_node_tuples_per_s", "n": 12} | changes


def tables() -> dict[str, Rows]:
    change = {"change_percent": -59.2, "median": 3241.4}
    return {
        "ranking": [row("ranking", **change), row("ranking", median=2.5, metric="latency_p95_ms", unit="ms")],
        "pairs": [row("pairs", other="even", ratio=0.41, ratio_low=0.4, ratio_high=0.42, adjusted_p=0.001)],
        "ratios": [row("ratios", factors="nodes=2", baseline="even", ratio=0.41, ratio_low=0.4, ratio_high=0.42)],
        "comparison": [row("comparison", smallest=10.0, largest=12.0)],
        "differences": [
            {key: value for key, value in row("differences", pairs=12).items() if key != "n"}
            | {"median_difference": -4713.0, "low": -4800.0, "high": 12.5}
        ],
    }


def test_tables_have_the_cells_that_a_paper_prints(tmp_path: Path) -> None:
    write_printed(tmp_path, tables())
    assert (tmp_path / "ranking.tex").read_text() == (
        "\\begin{tabular}{llrrr}\n\\toprule\n"
        "workload & scheduler & n & p95 latency, ms & tuples between nodes, tuples/s \\\\\n"
        "\\midrule\nwords & top\\_storm & 12 & 2.5 & 3\\,241 ($-$59\\,\\%) \\\\\n\\bottomrule\n\\end{tabular}\n"
    )
    assert (tmp_path / "ranking.md").read_text().splitlines()[1:] == [
        "| --- | --- | ---: | ---: | ---: |",
        "| words | top\\_storm | 12 | 2.5 | 3\u202f241 (−59\u202f%) |",
    ]
    last = {name: (tmp_path / f"{name}.md").read_text().splitlines()[-1] for name in PRINTED}
    assert last["pairs"].endswith("| tuples between nodes | 12 | 0.41 \\[0.4, 0.42\\] | 0.001 |")
    assert last["ratios"] == r"| words | nodes=2 | top\_storm / even | 12 | 0.41 \[0.4, 0.42\] |"
    assert last["comparison"].endswith("tuples/s | 12 | \\[10, 12\\] |")
    assert last["differences"].endswith("tuples/s | 12 | −4\u202f713 \\[−4\u202f800, 12.5\\] |")


def test_tables_without_rows_have_no_files(tmp_path: Path) -> None:
    write_printed(tmp_path, {name: [] for name in PRINTED})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", [latex, markdown])
@given(lines=TABLES)
def test_names_cannot_break_a_table(form: Callable[..., str], lines: list[list[str]]) -> None:
    written = form(lines[0], lines[1:])
    separator = r"(?<!\\)&" if form is latex else r"(?<!\\)\|"
    body = written.splitlines()[2:-2] if form is latex else written.splitlines()
    counts = {len(re.findall(separator, re.sub(r"\\\\", "", line))) for line in body if line != r"\midrule"}
    assert counts == {len(lines[0]) - 1 if form is latex else len(lines[0]) + 1}
    if form is latex:
        bare = re.sub(r"\\[{}]", "", written)
        assert bare.count("{") == bare.count("}")
        assert not re.search(r"(?<!\\)[#%]", written)


def cells_of_markdown(text: str) -> list[list[str]]:
    """Return the cells of the table that a reader of GitHub's Markdown sees."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            assert token.children is not None
            assert {child.type for child in token.children} <= {"text", "text_special"}
            rows[-1].append("".join(child.content for child in token.children))
    return rows


def cells_of_latex(text: str) -> list[list[str]]:
    """Return the cells as they are printed, by the meaning of the commands that are used."""
    meanings = {command: sign for sign, command in PRINTED_SIGNS.items()}
    pattern = "|".join(re.escape(command) for command in sorted(meanings, key=len, reverse=True))
    body = [line for line in text.splitlines()[2:-2] if line != r"\midrule"]
    rows = [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in body]
    return [[re.sub(pattern, lambda found: meanings[found.group()], cell) for cell in row] for row in rows]


PRINTED_SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "-": "-{}",
    **{sign: f"{{{sign}}}" for sign in "[]`'"},
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
HOSTILE = st.lists(
    st.one_of(
        st.text("ab1 \\~^<>|&%$#_{}[]`'\"*-+=!:@.()", min_size=1, max_size=12),
        st.sampled_from(
            ["a--b", "`x'", "&amp;", "~~s~~", "**b**", "<b>", "![i](u)", "\\input{x}", "$1$", "%", "a\\\\"]
        ),
    ).map(lambda text: " ".join(text.split()) or "x"),
    min_size=2,
    max_size=4,
)


@pytest.mark.parametrize("form", [latex, markdown])
@pytest.mark.parametrize("sign", "\n\r\v\f\x00\x1b\x85\u2028\u202e\t")
def test_line_breaks_and_control_characters_are_escaped(form: Callable[..., str], sign: str) -> None:
    plain, broken = (form(["name", "n"], [[f"a{between}b", "1"]]) for between in ("x", sign))
    assert len(broken.splitlines()) == len(plain.splitlines())
    assert broken.replace("\n", "").isprintable()


@given(HOSTILE.flatmap(lambda row: st.tuples(st.just(row), st.permutations(row))))
def test_hostile_names_are_printed_literally(rows: tuple[list[str], list[str]]) -> None:
    expected = [list(row) for row in rows]
    assert cells_of_markdown(markdown(*rows[:1], [rows[1]])) == expected
    printed = latex(*rows[:1], [rows[1]])
    assert cells_of_latex(printed) == expected
    assert not re.search("--|``|''|[?!]`", printed)
