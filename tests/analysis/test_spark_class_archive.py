"""Archive of Spark's classes: written once by a long job, used by later ones, written again for another Spark."""

import shutil
from pathlib import Path

import pytest

from analysis.tables.submit import ClassArchive, kept_classes


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A Java home, a Spark home and a cache, all of them empty but for one jar."""
    (tmp_path / "java").mkdir()
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-core.jar").write_bytes(b"1")
    places = {"JAVA_HOME": "java", "SPARK_HOME": "spark", "XDG_CACHE_HOME": "cache"}
    return {name: str(tmp_path / folder) for name, folder in places.items()}


def archive_of(classes: ClassArchive) -> Path:
    return Path(classes.options[-1].partition("=")[2])


def write_archive(environment: dict[str, str]) -> None:
    """Act as a long job whose Java writes an archive."""
    with kept_classes(environment, make=True) as classes:
        assert classes.made
        assert classes.options[-1].startswith("-XX:ArchiveClassesAtExit=")
        archive_of(classes).write_bytes(b"classes")


def test_a_long_job_writes_the_archive_and_later_ones_use_it(environment: dict[str, str]) -> None:
    with kept_classes(environment, make=False) as classes:
        assert classes == ClassArchive()
    write_archive(environment)
    for long in (False, True):
        with kept_classes(environment, make=long) as classes:
            assert not classes.made
            assert classes.options[-1].startswith("-XX:SharedArchiveFile=")
            assert archive_of(classes).read_bytes() == b"classes"


def test_an_archive_of_another_spark_is_not_used_and_is_replaced(environment: dict[str, str]) -> None:
    write_archive(environment)
    (Path(environment["SPARK_HOME"]) / "jars" / "spark-core.jar").write_bytes(b"22")
    with kept_classes(environment, make=False) as classes:
        assert classes == ClassArchive()
    write_archive(environment)
    with kept_classes(environment, make=False) as classes:
        assert archive_of(classes).is_file()


def another_checkout(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of the same user in another checkout, with another Spark."""
    spark = Path(environment["SPARK_HOME"]).with_name("spark of another checkout")
    shutil.copytree(environment["SPARK_HOME"], spark)
    return environment | {"SPARK_HOME": str(spark)}


def test_two_checkouts_have_separate_archives_even_if_written_at_the_same_time(
    environment: dict[str, str],
) -> None:
    other = another_checkout(environment)
    with kept_classes(environment, make=True) as one, kept_classes(other, make=True) as two:
        archive_of(one).write_bytes(b"one")
        archive_of(two).write_bytes(b"two")
    for checkout, content in ((environment, b"one"), (other, b"two")):
        with kept_classes(checkout, make=True) as classes:
            assert not classes.made
            assert archive_of(classes).read_bytes() == content


def test_the_archive_of_a_removed_checkout_is_deleted_when_another_one_is_written(environment: dict[str, str]) -> None:
    home = Path(environment["XDG_CACHE_HOME"]) / "millrace" / "spark-classes"
    home.mkdir(parents=True)
    (home / "classes.jsa").write_bytes(b"of an earlier version of Millrace, which had one for all")
    (home / "made-by").write_text("its stamp")
    other = another_checkout(environment)
    write_archive(other)
    shutil.rmtree(other["SPARK_HOME"])
    write_archive(environment)
    with kept_classes(environment, make=False) as classes:
        assert list(home.iterdir()) == [archive_of(classes).parent]


def test_a_job_that_fails_keeps_no_archive(environment: dict[str, str]) -> None:
    def fail() -> None:
        with kept_classes(environment, make=True) as classes:
            archive_of(classes).write_bytes(b"half of them")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list((Path(environment["XDG_CACHE_HOME"]) / "millrace" / "spark-classes").iterdir()) == []


def test_a_java_that_wrote_no_archive_is_not_tried_again(environment: dict[str, str]) -> None:
    with kept_classes(environment, make=True) as classes:
        assert classes.made
    with kept_classes(environment, make=True) as classes:
        assert classes == ClassArchive()


def test_jobs_have_no_archive_if_the_cache_cannot_be_written(environment: dict[str, str]) -> None:
    Path(environment["XDG_CACHE_HOME"]).write_text("no folder")
    with kept_classes(environment, make=True) as classes:
        assert classes == ClassArchive()


@pytest.mark.parametrize("own", [True, False], ids=["SPARK_CONF_DIR", "conf of Spark's home"])
def test_no_archive_is_written_if_the_class_path_has_a_folder_with_files(
    own: bool, environment: dict[str, str], tmp_path: Path
) -> None:
    settings = tmp_path / ("settings" if own else "spark/conf")
    settings.mkdir()
    environment |= {"SPARK_CONF_DIR": str(settings)} if own else {}
    (settings / "spark-defaults.conf").write_text("spark.ui.port 4050\n")
    with kept_classes(environment, make=True) as classes:
        assert classes == ClassArchive()
    (settings / "spark-defaults.conf").unlink()
    write_archive(environment)
