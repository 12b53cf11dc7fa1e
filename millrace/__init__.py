"""Public interface for plug-ins, which import their types and helpers from here, and for readers of results.

Every name is defined elsewhere, and loaded from there when it is first used: `import millrace` loads nothing else.
`docs/reference/python.md` lists the names.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` would delay the command line

if TYPE_CHECKING:
    from msgspec import Meta

    from agents.sensors import Host, Sensor
    from agents.sensors import Row as TraceRow
    from analysis.records.file_types import RunRecord
    from campaign.results.open_results import Results, ResultTable
    from campaign.results.run_summary import RunSummary
    from inventory.cluster import Cluster, ExistingWorker, Network, Node
    from inventory.errors import InputError, ParameterError, UnfitError, nearest
    from inventory.power_index import NodePower, power_index
    from scheduler.online.observation import Change, Expected, Observation
    from scheduler.online.revision import OnlineScheduler, Revision, Rhythm
    from scheduler.problem import (
        CommunicationSchedule,
        Move,
        Needs,
        NoParams,
        Placement,
        Plan,
        Problem,
        Scheduler,
        Slot,
        concluded,
    )
    from scheduler.toolkit.communication import ClassAffinity, Classes, RateAffinity, classes_of
    from scheduler.toolkit.cost import Cost, Loads, cost
    from scheduler.toolkit.slots import FreeSlots, assigned, interleaved, running, waiting
    from workloads.arrays import distinct
    from workloads.columns import ColumnBatch, ColumnBolt, ColumnSpout, Derived
    from workloads.data.row_digest import Digest, RowMultiset, digest_of
    from workloads.data.text import LineSpout, TextParams, prepare_text, read_records, times_emitted
    from workloads.keyed_state import KeyedState
    from workloads.operators import (
        NOTHING,
        Batch,
        Bolt,
        Combining,
        Context,
        Emitted,
        Operator,
        Row,
        Seekable,
        Spout,
        TupleBolt,
        per_tuple,
    )
    from workloads.recordings.recording import RecordedSpout
    from workloads.schedules import Schedule
    from workloads.topology import Component, Constraints, Executor, Input, Topology, ackers
    from workloads.traffic import Edge, Traffic
    from workloads.windows import EventTimeWindows, IntervalJoin
    from workloads.workload import Answer, PreparedInput, Verdict, Workload, filled, rows_differ

__all__ = [
    "NOTHING",
    "Answer",
    "Batch",
    "Bolt",
    "Change",
    "ClassAffinity",
    "Classes",
    "Cluster",
    "ColumnBatch",
    "ColumnBolt",
    "ColumnSpout",
    "Combining",
    "CommunicationSchedule",
    "Component",
    "Constraints",
    "Context",
    "Cost",
    "Derived",
    "Digest",
    "Edge",
    "Emitted",
    "EventTimeWindows",
    "Executor",
    "ExistingWorker",
    "Expected",
    "FreeSlots",
    "Host",
    "Input",
    "InputError",
    "IntervalJoin",
    "KeyedState",
    "LineSpout",
    "Loads",
    "Meta",
    "Move",
    "Needs",
    "Network",
    "NoParams",
    "Node",
    "NodePower",
    "Observation",
    "OnlineScheduler",
    "Operator",
    "ParameterError",
    "Placement",
    "Plan",
    "PreparedInput",
    "Problem",
    "RateAffinity",
    "RecordedSpout",
    "ResultTable",
    "Results",
    "Revision",
    "Rhythm",
    "Row",
    "RowMultiset",
    "RunRecord",
    "RunSummary",
    "Schedule",
    "Scheduler",
    "Seekable",
    "Sensor",
    "Slot",
    "Spout",
    "TextParams",
    "Topology",
    "TraceRow",
    "Traffic",
    "TupleBolt",
    "UnfitError",
    "Verdict",
    "Workload",
    "ackers",
    "assigned",
    "classes_of",
    "concluded",
    "cost",
    "digest_of",
    "distinct",
    "filled",
    "interleaved",
    "nearest",
    "per_tuple",
    "power_index",
    "prepare_text",
    "read_records",
    "rows_differ",
    "running",
    "times_emitted",
    "waiting",
]

EXPORTS = {
    "scheduler.problem": {
        "Scheduler": "Interface of a scheduler class.",
        "Problem": "Input of a scheduler: cluster, topologies, traffic and running workers.",
        "Plan": "Result of a scheduler: a placement for every topology, with optional clocks, moves and details.",
        "Placement": "Slots of the executors of one topology, with a status and a message.",
        "Slot": "Slot of a node: the node's id and the slot's index.",
        "Needs": "Inputs that a scheduler uses, as `millrace list schedulers` shows them.",
        "NoParams": "Parameters of a scheduler that has none.",
        "Move": "Change of slot of a running executor.",
        "CommunicationSchedule": "Receiver of every node in every step of a pipelined communication.",
        "concluded": "Make a placement whose status follows from the number of placed executors.",
    },
    "scheduler.online.revision": {
        "OnlineScheduler": "Interface of a scheduler class that also revises what runs.",
        "Rhythm": "When a scheduler is asked, and what its windows are.",
        "Revision": "Changes of a running topology: moves, clocks, the reason and details.",
    },
    "scheduler.online.observation": {
        "Observation": "What was measured of a running topology in one window.",
        "Expected": "Prediction of a revision: tuples/s between nodes, load of nodes, watts.",
        "Change": "Node or component that changed since the window before.",
    },
    "scheduler.toolkit.slots": {
        "FreeSlots": "Free slots of the cluster during a round, lowest port first.",
        "running": "Return the workers that run on available nodes, by topology.",
        "assigned": "Return the slot of every executor of some workers.",
        "waiting": "Return the executors of a topology that have no worker, in the topology's order.",
        "interleaved": "Iterate over free slots in Storm's order: one slot of every node, then a second one.",
    },
    "scheduler.toolkit.communication": {
        "Classes": "Executors of a topology grouped by equal communication partners.",
        "classes_of": "Group the executors of a topology by equal communication partners.",
        "ClassAffinity": "Waiting executor with most communicating pairs into a growing group.",
        "RateAffinity": "Waiting executor with the largest observed rate into a growing group.",
    },
    "scheduler.toolkit.cost": {
        "Loads": "Loads of executors and capacities of nodes in one unit.",
        "Cost": "Cost of placements: traffic between nodes and workers, nodes and slots used, balance.",
        "cost": "Compute the cost of placements.",
    },
    "inventory.cluster": {
        "Cluster": "Nodes, network and running workers, as a cluster file describes them.",
        "Node": "Machine of a cluster: slots, hardware, rack and availability.",
        "Network": "R-Storm's network distance between two nodes, by rack.",
        "ExistingWorker": "Worker that runs before the round: topology, slot and executors.",
    },
    "inventory.power_index": {
        "NodePower": "Computing power of a node, and its rank.",
        "power_index": "Rank the available nodes by computing power.",
    },
    "workloads.topology": {
        "Topology": "Application as a directed graph of components.",
        "Component": "Spout or bolt of a topology, with its parallelism, demands, outputs and inputs.",
        "Input": "Subscription of a bolt to a stream, with its grouping.",
        "Constraints": "Components that may not share a worker, and most executors of a component per node.",
        "Executor": "Running instance of a component: the component's id and an index.",
        "ackers": "Return Storm's acking component with a number of executors, for the end of a topology.",
    },
    "workloads.traffic": {
        "Traffic": "Observed rates between executors, loads of executors and loads of nodes.",
        "Edge": "Observed rate from one executor to another.",
    },
    "workloads.workload": {
        "Workload": "Interface of a workload class.",
        "PreparedInput": "Input file of a workload, prepared once and copied to every node.",
        "Verdict": "Result of comparing an answer with its reference.",
        "Answer": "Type of an answer: rows by table.",
        "filled": "Merge given parallelism per component with the defaults.",
        "rows_differ": "Compare two keyed tables; return the first differences in words.",
    },
    "workloads.operators": {
        "Operator": "Base class of spouts and bolts: open, close, snapshot and restore, store_state and load_state.",
        "Spout": "Base class of sources of rows.",
        "Bolt": "Base class of operators that process batches of rows; a sink gives an answer.",
        "TupleBolt": "Base class of bolts that process one row at a time.",
        "per_tuple": "Turn a function of one row into a stateless bolt.",
        "Combining": "Interface of bolts that merge rows with equal keys before a fields grouping.",
        "Seekable": "Interface of spouts that can begin at any of their records.",
        "Context": "Component, index, parameters, seed and input files of an opened executor.",
        "Batch": "Rows of one stream from one executor.",
        "Row": "Type of a row of a stream: a tuple of its fields.",
        "Emitted": "Type of what a bolt returns: rows by stream.",
        "NOTHING": "Result of a bolt that emits no rows.",
    },
    "workloads.keyed_state": {
        "KeyedState": "State by key, declared by an operator: the runtime snapshots, divides, moves and merges it.",
    },
    "workloads.windows": {
        "EventTimeWindows": "Tumbling or sliding windows by event time, with lateness, on a table of `KeyedState`.",
        "IntervalJoin": "Join of two streams by key and time, on two tables of `KeyedState`.",
    },
    "workloads.columns": {
        "ColumnBolt": "Base class of bolts that process batches of columns.",
        "ColumnSpout": "Base class of sources of columns.",
        "ColumnBatch": "Rows of one stream from one executor, as columns.",
        "Derived": "Columns that a bolt emits, with the row that each of their rows was derived from.",
    },
    "workloads.arrays": {
        "distinct": "Return the distinct values of a column, and the number of its value for each row.",
    },
    "workloads.schedules": {
        "Schedule": "Interface of due times by record number: `Spout.times` of recorded data.",
    },
    "workloads.data.text": {
        "LineSpout": "Spout of the records of a prepared text, in a loop.",
        "times_emitted": "Return how often each record of a looped input was emitted.",
        "TextParams": "Parameters of a workload over text: text, parallelism, ackers and workers.",
        "prepare_text": "Prepare a text as a file with one line or word per record.",
        "read_records": "Read the records of a prepared text.",
    },
    "workloads.data.row_digest": {
        "RowMultiset": "Multiset of rows that is kept as a digest, for answers too large to store.",
        "Digest": "Number of rows and checksum of a multiset of rows.",
        "digest_of": "Return the digest of rows that occur a number of times each.",
    },
    "workloads.recordings.recording": {
        "RecordedSpout": "Spout of a prepared recording, with its recorded times.",
    },
    "agents.sensors": {
        "Sensor": "Base class of sensors: probe, read and close.",
        "Host": "Node that a sensor measures: id, address, workers and energy model.",
        "TraceRow": "Row of a trace table, as a sensor returns it.",
    },
    "campaign.results.open_results": {
        "Results": "Results of a campaign: records of runs, traces and tables of the report.",
        "ResultTable": "Table of results that is read when it is converted to pandas or Arrow.",
    },
    "campaign.results.run_summary": {
        "RunSummary": "Status and main metrics of a run.",
    },
    "analysis.records.file_types": {
        "RunRecord": "Content of `run.json`.",
    },
    "msgspec": {
        "Meta": "Limits of a parameter, in its annotation: `Annotated[float, Meta(ge=0)]`.",
    },
    "inventory.errors": {
        "InputError": "Error in what the user wrote; exit status 2.",
        "ParameterError": "Error in a parameter, reported with the file and line where it is written; exit status 2.",
        "UnfitError": "Error of a machine or cluster that lacks something; exit status 3.",
        "nearest": "Return the end of an error message with the nearest valid choice.",
    },
}
"""Module -> name -> one line of documentation, in the order of `docs/reference/python.md`."""

_RENAMED = {"TraceRow": "Row"}
_MODULES = {name: module for module, names in EXPORTS.items() for name in names}

if not TYPE_CHECKING:  # type checkers read the imports above, so that they report a name that does not exist

    def __getattr__(name: str) -> object:
        """Load an exported name from its module."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(_MODULES[name]), _RENAMED.get(name, name))
        return value

    def __dir__() -> list[str]:
        """Return the exported names, loaded or not."""
        return sorted(__all__)
