"""Workloads by name: defaults, parameters, third-party packages, and topologies that cannot run."""

from dataclasses import dataclass

import msgspec
import pytest

from inventory.documents import parse_document
from inventory.errors import InputError, UnfitError
from inventory.plugins import as_plain, plugins
from workloads.topology import Component, Executor, Input, Topology
from workloads.workload import GROUP, Workload, check_runnable, load_workload, workload_of

WORD = {"default": {"word": "str", "place": "int"}}


@pytest.mark.parametrize(
    ("name", "sizes", "links"),
    [
        (
            "wordcount",
            {"spout": 5, "split": 8, "count": 12, "__acker": 3},
            [("spout", "split", "shuffle", ()), ("split", "count", "fields", ("word",))],
        ),
        (
            "exclamation",
            {"word": 10, "exclaim1": 3, "exclaim2": 2, "__acker": 3},
            [("word", "exclaim1", "shuffle", ()), ("exclaim1", "exclaim2", "shuffle", ())],
        ),
    ],
)
def test_the_applications_have_top_storm_s_executors_and_links(name, sizes, links):
    workload = load_workload(name, {})
    topology = workload.topology()
    assert isinstance(workload, Workload)
    assert (workload.name, topology.id, topology.workers) == (name, name, 5)
    assert {c.id: c.parallelism for c in topology.components} == sizes
    assert [(a.id, b.id, i.grouping, i.fields) for a, b, i in topology.links()] == links
    assert len(topology.executors) == {"wordcount": 28, "exclamation": 18}[name]
    assert topology.executors[-1] == Executor("__acker", 2)


def test_every_workload_has_a_valid_default_topology():
    for name in plugins(GROUP):
        assert load_workload(name, {}).topology().executors


def test_parameters_are_merged_over_the_defaults_and_survive_serialisation():
    given = {"text": ["a.txt", "b.txt"], "parallelism": {"count": 2}, "ackers": 0, "workers": 2}
    workload = load_workload("wordcount", given)
    plain = as_plain(workload.params)
    assert plain["parallelism"] == {"spout": 5, "split": 8, "count": 2}
    assert load_workload("wordcount", msgspec.json.decode(msgspec.json.encode(plain))).params == workload.params
    topology = workload.topology()
    assert [c.id for c in topology.components] == ["spout", "split", "count"]
    assert topology.workers == 2


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("{paralelism: {spout: 2}}", r"agenda.yaml:3: .*unknown parameter 'paralelism'; did you mean 'parallelism'"),
        ("{parallelism: {spuot: 2}}", r"agenda.yaml:3: .*unknown component 'spuot'; did you mean 'spout'"),
        ("{parallelism: {__acker: 2}}", r"agenda.yaml:3: .*unknown component '__acker'; valid: count, split, spout"),
        ("{parallelism: {split: 0}}", r"agenda.yaml:3: .*parallelism.split: got 0, expected at least 1"),
        ("{parallelism: {split: 2.5}}", r"agenda.yaml:3: .*expected a whole number, got a number"),
        ("{parallelism: 3}", r"agenda.yaml:3: params.parallelism: got 3: expected a mapping"),
        ("{ackers: -1}", r"agenda.yaml:3: params.ackers: got -1: expected a whole number >= 0"),
        ("{workers: 0}", r"agenda.yaml:3: params.workers: got 0: expected a whole number >= 1"),
        ("{text: 7}", r"agenda.yaml:3: params.text: got 7"),
        ("[text]", r"agenda.yaml:3: params: a mapping of parameters was expected"),
    ],
)
def test_wrong_parameters_are_explained_with_their_line(params, said):
    document = parse_document(f"name: wordcount\nlabel: x\nparams: {params}\n", "agenda.yaml")
    with pytest.raises(InputError, match=said):
        workload_of("wordcount", document.origin / "params")


def test_an_unknown_workload_names_the_nearest():
    with pytest.raises(InputError, match="unknown workload 'word-count'; did you mean 'wordcount'"):
        load_workload("word-count", {})


HALFWAY = """
from workloads.apps.wordcount import WordCountParams
class Made:
    Params = WordCountParams
    def __init__(self, params): self.params = params
"""

ROUND = """
from workloads.topology import Component, Input, Topology
from workloads.apps.wordcount import WordCount
class Made(WordCount):
    def topology(self):
        out = {"default": {"x": "int"}}
        spout = Component("s", "spout", outputs=out)
        first = Component("a", "bolt", outputs=out, inputs=(Input("s"), Input("b")))
        return Topology("round", (spout, first, Component("b", "bolt", outputs=out, inputs=(Input("a"),))))
"""


def test_a_package_s_workload_that_lacks_a_method_or_cannot_be_imported_is_refused(install_workload):
    install_workload("halfway", HALFWAY, "Made")
    install_workload("broken", "import no_such_module", "Made")
    with pytest.raises(UnfitError, match=r"the workload 'halfway' \(halfway_package\) lacks part of the interface"):
        load_workload("halfway", {})
    with pytest.raises(UnfitError, match=r"the workload 'broken' .* cannot be loaded: No module named"):
        load_workload("broken", {})


def test_a_package_s_workload_with_a_cycle_is_refused(install_workload):
    install_workload("round", ROUND, "Made")
    with pytest.raises(InputError, match=r"'round' has a cycle: [ab] -> [ab] -> [ab]"):
        load_workload("round", {})


@dataclass
class Shape:
    """Topology spout -> bolt with one invalid part."""

    spout_outputs: object = None
    entry: object = None
    more: tuple = ()
    spout: bool = True

    def topology(self):
        outputs = WORD if self.spout_outputs is None else self.spout_outputs
        spout = Component("words", "spout", outputs=outputs)
        bolt = Component("sink", "bolt", inputs=(self.entry or Input("words"), *self.more))
        return Topology("t", (spout, bolt) if self.spout else (Component("sink", "bolt", inputs=(Input("sink"),)),))


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Shape(entry=Input("wrods")), r"unknown component 'wrods'; did you mean 'words'"),
        (Shape(entry=Input("words", stream="late")), r"'words' has no stream 'late'; valid: default"),
        (Shape(entry=Input("words", "fields", ("wrod",))), r"no field 'wrod'; did you mean 'word'"),
        (Shape(entry=Input("words", "fields")), r"a fields grouping names at least one field"),
        (Shape(entry=Input("words", "direct")), r"a direct grouping needs an int field of 'words'"),
        (Shape(entry=Input("words", "shufle")), r"grouping: .*shufle.*did you mean 'shuffle'"),
        (Shape(more=(Input("words"),)), r"bolt 'sink': subscribes twice to the stream 'default' of 'words'"),
        (Shape(spout_outputs={}), r"'words' has no stream 'default'"),
        (Shape({"late": {"x": "int"}}, Input("words", stream="late")), r"spout 'words': a spout declares one output"),
        (Shape(spout_outputs={"default": {"word": "text"}}), r"outputs.*'text'.*valid: bool, bytes, float, int, str"),
        (Shape(spout=False), r"has no spout"),
    ],
)
def test_a_topology_that_cannot_run_is_refused(shape, said):
    with pytest.raises(InputError, match=said):
        check_runnable(shape.topology())


def test_a_bolt_needs_inputs_and_its_inputs_need_outputs():
    spout = Component("s", "spout", outputs=WORD)
    with pytest.raises(InputError, match="bolt 'idle': has no input"):
        check_runnable(Topology("t", (spout, Component("idle", "bolt"))))
    quiet = Component("quiet", "bolt", inputs=(Input("s"),))
    with pytest.raises(InputError, match="bolt 'last': its input 'quiet' declares no outputs"):
        check_runnable(Topology("t", (spout, quiet, Component("last", "bolt", inputs=(Input("quiet"),)))))
    with pytest.raises(InputError, match=r"topology 't': components\[0\].parallelism: got 0"):
        check_runnable(Topology("t", (Component("s", "spout", 0, outputs=WORD),)))


def test_every_grouping_can_run():
    entries = [
        Input("s", kind, fields)
        for kind, fields in [
            ("shuffle", ()),
            ("local-or-shuffle", ()),
            ("all", ()),
            ("global", ()),
            ("fields", ("word", "place")),
            ("direct", ("place",)),
        ]
    ]
    bolts = [Component(f"b{at}", "bolt", 2, inputs=(entry,)) for at, entry in enumerate(entries)]
    check_runnable(Topology("t", (Component("s", "spout", 2, outputs=WORD), *bolts, Component("__acker", "bolt"))))
