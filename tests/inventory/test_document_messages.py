"""Error messages of documents are complete and in plain words, also inside tagged unions."""

from typing import Annotated

import pytest
from msgspec import Meta, Struct

from inventory.documents import parse_document
from inventory.errors import InputError, nearest

Code = Annotated[str, Meta(pattern=r"^[a-z]+\Z", description="small letters")]


class Shelf(Struct, frozen=True, forbid_unknown_fields=True):
    code: Code
    other: Code | None = None
    codes: tuple[Code, ...] = ()
    by_name: dict[str, Code] = {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"d\.yaml: holds nothing; a mapping was expected"),
        ("# nothing but a comment", r"d\.yaml: holds nothing; a mapping was expected"),
        ("code: A1", r'd\.yaml:1: code: got "A1": expected small letters'),
        ("code: a\nother: A1", r'd\.yaml:2: other: got "A1": expected small letters'),
        ("code: a\ncodes: [b, C]", r'd\.yaml:2: codes\[1\]: got "C": expected small letters'),
        ("code: a\nby_name: {x: b, y: C}", r'd\.yaml:2: by_name\.y: got "C": expected small letters'),
        ('code: "a\\n"', r'd\.yaml:1: code: got "a\\n": expected small letters'),
    ],
)
def test_messages_describe_the_expected_value(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        parse_document(text, "d.yaml").convert(Shelf)


class Room(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    shelves: tuple[Shelf | str, ...] = ()
    by_name: dict[str, Shelf] = {}
    size: Annotated[float, Meta(ge=0)] | None = None


def test_all_faults_of_a_document_are_told_at_once() -> None:
    text = "nam: x\nsize: -1\nshelves:\n- {code: A, other: 1}\n- b\n- {cod: a}\nby_name: {x: {code: a}, y: {code: B}}\n"
    with pytest.raises(InputError) as caught:
        parse_document(text, "d.yaml").convert(Room)
    assert [line.partition(": got")[0].partition(": unknown")[0] for line in str(caught.value).split("\n")] == [
        "d.yaml:1: nam",
        "d.yaml:2: size",
        "d.yaml:4: shelves[0].code",
        "d.yaml:4: shelves[0].other",
        "d.yaml:6: shelves[2].cod",
        "d.yaml:6: shelves[2]: the key 'code' is missing",
        "d.yaml:7: by_name.y.code",
        "d.yaml:1: the key 'name' is missing",
    ]


def test_the_nearest_name_may_differ_in_case_only() -> None:
    assert nearest("EVEN", ["even", "optimal"]) == "; did you mean 'even'?"
    assert nearest("topstorm", ["Top-Storm", "even"]) == "; did you mean 'Top-Storm'?"


class Circle(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="circle"):
    radius: float


class Square(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="square"):
    side: float


class Named(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class Drawing(Struct, frozen=True, forbid_unknown_fields=True):
    shapes: tuple[Circle | Square, ...] = ()
    people: tuple[str | Named, ...] = ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shapes: [{kind: circel, radius: 1}]", "d.yaml:1: shapes.0..kind: .*'circel'.*; did you mean 'circle'"),
        ("shapes:\n- {kind: square, sides: 1}", "d.yaml:2: shapes.0..sides: unknown key 'sides'; did you mean 'side'"),
        ("shapes: [{kind: hexagon}]", "valid: circle, square"),
        ("people: [ann, {nam: bob}]", "people.1..nam: unknown key 'nam'; did you mean 'name'"),
    ],
)
def test_an_error_inside_a_union_names_the_nearest_choice(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_document(text, "d.yaml").convert(Drawing)
