"""Text of documents: YAML 1.2 and JSON are read alike, refusals name the line, and no text crashes the reader."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.cluster import cluster_from_document
from inventory.documents import Document, dump_json, dump_yaml, parse_document
from inventory.errors import InputError
from workloads.topology import topology_of
from workloads.traffic import traffic_from_document

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)


@given(trees)
def test_written_documents_are_read_back(tree: object) -> None:
    for text in (dump_json(tree), dump_yaml(tree), json.dumps(tree), json.dumps(tree, ensure_ascii=False, indent=1)):
        if isinstance(tree, dict | list) or text in (dump_json(tree), dump_yaml(tree)):
            assert parse_document(text).data == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("", None),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("2020-01-01", "2020-01-01"),
        ("'1'", "1"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = parse_document(f"key: {text}").data["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "d.yml:2: a: the key 'a' is given twice"),
        ('{\n"a": 1,\n"a": 2}', "d.yml:3: a: the key 'a' is given twice"),
        ('{\n"a": {"b": 1e999}}', "d.yml:2: a.b: 1e999 is not a finite number"),
        ('{\n"a": "\\ud800"}', "d.yml:2: not valid YAML or JSON: found invalid Unicode character escape code"),
        ('{\n"\\uDFFF": 1}', "d.yml:2: not valid YAML or JSON: found invalid Unicode character escape code"),
        ("a:\n- .inf", r"d.yml:2: a\[0\]: .inf is not a finite number"),
        ("a:\n  b: 1" + "0" * 5000, "d.yml:2: a.b: '10000.* is no number that can be used"),
        ("{\n'a': [1}", "d.yml:2: not valid YAML or JSON"),
        ("a: *b", "d.yml:1: not valid YAML or JSON"),
        ("a: &x [*x]", r"d.yml:1: a\[0\]: an alias that contains itself"),
        ("? [1]\n: 2", "d.yml:1: a key must be plain text"),
        ("a: 1\n---\na: 2", "d.yml:2: not valid YAML or JSON"),
        ("a:\x00", "d.yml: not valid YAML or JSON"),
        ("a:\n " + "[" * 200 + "]" * 200, r"d.yml:2: a\[0\]\[0\]: nested too deep"),
        ("a:\n " + "[" * 100_000 + "]" * 100_000, "d.yml:2: nested too deep"),
        ("[" * 100_000, "d.yml:1: nested too deep"),
        ("- " * 50_000, "d.yml:1: nested too deep"),
    ],
    ids=lambda value: value[:30],
)
def test_a_text_that_cannot_be_used_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match="^" + message):
        parse_document(text, "d.yml")


def test_aliases_cannot_expand_a_document_without_bound() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, own in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{own}: &{own} [{', '.join([f'*{before}'] * 9)}]")
    with pytest.raises(InputError, match="aliases blow the document up"):
        parse_document("\n".join(lines))
    assert parse_document("a: &a [1, 2]\nb: *a").data == {"a": [1, 2], "b": [1, 2]}


def test_json_is_read_fast_and_keeps_its_lines() -> None:
    document = parse_document('{\n "nodes": [\n  {"id": "a"},\n  {"id": "b", "slots": "x"}\n ]\n}', "c.json")
    assert document.where(("nodes", 1, "slots")) == "c.json:4"
    with pytest.raises(InputError, match=r'c.json:4: nodes\[1\].slots: got "x": expected a whole number, got text'):
        cluster_from_document(document)


def test_characters_beyond_the_first_plane_survive_json() -> None:
    assert parse_document(json.dumps({"id": "🦆"})).data == {"id": "🦆"}
    assert parse_document('{"a": "\\/"}').data == {"a": "/"}


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_document(text)
    except InputError:
        return


keys = st.sampled_from(
    ["nodes", "id", "slots", "components", "kind", "inputs", "from", "edges", "existing", "facts", "x"]
)
wild = st.recursive(
    scalars | st.sampled_from(["spout", "bolt", "a", "a[0]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=15,
)


def error_message(kind: Callable[[Document], object], text: str) -> str:
    try:
        kind(parse_document(text, "d.yml"))
    except InputError as refused:
        return "\n".join(line.partition(": ")[2] for line in str(refused).split("\n"))
    return ""


@given(st.dictionaries(keys, wild, max_size=5))
def test_any_document_is_accepted_or_refused_alike_in_json_and_yaml(tree: object) -> None:
    for kind in (cluster_from_document, topology_of, traffic_from_document):
        messages = {error_message(kind, dump(tree)) for dump in (dump_json, dump_yaml)}
        assert len(messages) == 1  # the same fault in JSON as in YAML
