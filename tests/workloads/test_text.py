"""Preparation of texts: lines and words of files and folders, reuse, and refused inputs."""

import gzip
import re
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.errors import InputError, UnfitError
from workloads.data import text
from workloads.data.text import prepare_text, read_records


def prepared(source, tmp_path, unit="lines"):
    found = prepare_text(str(source), unit, tmp_path / "prepared")
    records = read_records(found.path)
    assert found.records == len(records)
    assert found.sha256 == sha256(found.path.read_bytes()).hexdigest()
    return records


def written(tmp_path, data, name="book.txt"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_the_default_text_is_cpython_s_own_documentation(tmp_path):
    lines = prepare_text("", "lines", tmp_path)
    words = prepare_text("", "words", tmp_path)
    assert 'The "assert" statement' in read_records(lines.path)
    assert " ".join(read_records(lines.path)).split() == read_records(words.path)
    assert lines.records > 5000
    assert lines.path != words.path
    assert "documentation topics of CPython 3." in lines.origin


def test_real_books_have_the_numbers_of_lines_and_words_that_other_tools_count(shared_data, tmp_path):
    counted = {"pride-and-prejudice": (13427, 124592), "sherlock-holmes": (13053, 107537), "moby-dick": (22333, 215829)}
    books = [str(shared_data / "text" / f"{book}.txt.gz") for book in counted]
    for book, sizes in zip(books, counted.values(), strict=True):
        assert (prepare_text(book, "lines", tmp_path).records, prepare_text(book, "words", tmp_path).records) == sizes
    together = prepare_text(tuple(books), "lines", tmp_path)
    assert together.records == 13427 + 13053 + 22333
    assert together.origin == f"{', '.join(books)} (3 files)"
    assert "\r" not in together.path.read_text()
    assert "\ufeff" not in together.path.read_text()


def test_a_folder_is_all_its_files_in_the_order_of_their_paths(tmp_path):
    books = tmp_path / "books"
    written(books, b"one", "b.txt")
    written(books, gzip.compress(b"two\n"), "a/c.txt.gz")
    written(books, b"\xff", ".hidden")
    written(books, b"\xff", ".git/objects")
    assert prepared(books, tmp_path) == ["two", "one"]


@given(data=st.text(st.sampled_from("ab \t\r\n\x0b\x85\u2028\u00e9\U0001f40b"), min_size=1))
def test_lines_end_at_lf_crlf_or_cr_and_nowhere_else(tmp_path_factory, data):
    data += "a"  # at least one word
    tmp_path = tmp_path_factory.mktemp("lines")
    path = written(tmp_path, data.encode())
    assert prepared(path, tmp_path) == re.split(r"\r\n|\r|\n", data)
    assert prepared(path, tmp_path, "words") == data.split()


def test_blank_lines_are_records_and_the_last_line_may_lack_its_end(tmp_path):
    assert prepared(written(tmp_path, b"\n\none\r\n\r\ntwo"), tmp_path) == ["", "", "one", "", "two"]
    assert prepared(written(tmp_path, b"one\r\n\r\n"), tmp_path) == ["one", ""]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    assert prepared(written(tmp_path, b"\xef\xbb\xbfone\n"), tmp_path) == ["one"]


def test_a_prepared_file_is_reused_and_a_damaged_one_is_prepared_again(tmp_path):
    book = written(tmp_path, b"one\ntwo\n")
    first = prepare_text(str(book), "lines", tmp_path / "kept")
    inode = first.path.stat().st_ino
    assert prepare_text(str(book), "lines", tmp_path / "kept") == first
    assert first.path.stat().st_ino == inode
    for damage in (b"one\ntwi\n", b"", None):
        if damage is None:
            first.path.unlink()
        else:
            first.path.write_bytes(damage)
        assert prepare_text(str(book), "lines", tmp_path / "kept") == first
        assert first.path.read_bytes() == b"one\ntwo\n"
    first.path.with_suffix(".json").write_text("{")
    assert prepare_text(str(book), "lines", tmp_path / "kept") == first
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        first.path.name,
        first.path.with_suffix(".json").name,
    }


def test_a_changed_text_is_prepared_again(tmp_path):
    book = written(tmp_path, b"one\n")
    first = prepare_text(str(book), "lines", tmp_path / "kept")
    written(tmp_path, b"two\n")
    second = prepare_text(str(book), "lines", tmp_path / "kept")
    assert read_records(first.path) == ["one"]
    assert read_records(second.path) == ["two"]


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"caf\xe9\n", "byte 3 (line 1) is 0xe9"),
        (b"one\r\ntwo\xff\n", "byte 8 (line 2) is 0xff"),
        (b"\xef\xbb\xbfone\n\xfe", "byte 7 (line 2) is 0xfe"),
        (b"\xff\xfeo\x00n\x00e\x00", "byte 0 (line 1) is 0xff"),
        (b"cut short \xe2\x80", "byte 10 (line 1) is 0xe2"),
    ],
)
def test_undecodable_text_is_refused_with_file_and_byte(tmp_path, data, place):
    for name, content in (("b.txt", data), ("b.txt.gz", gzip.compress(data))):
        path = written(tmp_path, content, name)
        with pytest.raises(InputError, match=re.escape(f"{path} is not UTF-8: {place}")):
            prepare_text(str(path), "lines", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \t\r\n\x0b\x85".replace(b"\x85", b"\xc2\x85")])
@pytest.mark.parametrize("unit", ["lines", "words"])
def test_a_text_without_a_word_is_refused(tmp_path, data, unit):
    with pytest.raises(InputError, match="has no word in it"):
        prepared(written(tmp_path, data), tmp_path, unit)


@pytest.mark.parametrize("cut", [5, 20, -4])
def test_a_cut_or_damaged_gzip_file_is_refused(tmp_path, cut):
    path = written(tmp_path, gzip.compress(b"one two three " * 99)[:cut], "b.txt.gz")
    with pytest.raises(InputError, match=r"b\.txt\.gz is not a whole gzip file"):
        prepared(path, tmp_path)
    with pytest.raises(InputError, match=r"plain\.gz is not a whole gzip file"):
        prepared(written(tmp_path, b"one two three", "plain.gz"), tmp_path)
    damaged = bytearray(gzip.compress(b"one two three " * 99))
    damaged[20] ^= 0xFF
    with pytest.raises(InputError, match=r"bad\.gz is not a whole gzip file"):
        prepared(written(tmp_path, bytes(damaged), "bad.gz"), tmp_path)


def test_sources_that_are_no_text_files_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for source, message in (
        (str(tmp_path / "nothing.txt"), "does not exist"),
        (str(tmp_path / ("long" * 99)), "cannot be read: File name too long"),
        (str(tmp_path / "empty"), "has no file in it"),
        ("/dev/null", "is neither a file nor a folder"),
        ((), "expected the paths of one or more files"),
        (("",), "expected the paths of one or more files"),
    ):
        with pytest.raises(InputError, match=message):
            prepare_text(source, "lines", tmp_path / "kept")


def test_too_large_a_text_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "MOST_BYTES", 1 << 20)
    bomb = written(tmp_path, gzip.compress(b"word " * (1 << 20)), "bomb.gz")
    with pytest.raises(InputError, match=r"bomb\.gz the text takes more than 1 MB"):
        prepared(bomb, tmp_path)
    half = written(tmp_path, b"word\n" * 120_000, "half.txt")
    with pytest.raises(InputError, match=r"half\.txt the text takes more than 1 MB"):
        prepare_text((str(half), str(half)), "lines", tmp_path / "kept")


def test_a_line_too_long_for_a_frame_is_refused_with_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "MOST_CHARACTERS", 10)
    assert prepared(written(tmp_path, b"a" * 10), tmp_path) == ["a" * 10]
    with pytest.raises(InputError, match=r"line 2 of .*book\.txt has 11 characters, the most is 10"):
        prepared(written(tmp_path, b"one\n" + b"a" * 11), tmp_path)


def test_a_folder_that_cannot_be_written_is_an_unfit_machine(tmp_path):
    book = written(tmp_path, b"one")
    with pytest.raises(UnfitError, match="the prepared text cannot be written: Not a directory"):
        prepare_text(str(book), "lines", book / "kept")
    with pytest.raises(UnfitError, match="cannot be written: File exists"):
        prepare_text(str(book), "lines", book)
