"""What can be generated, by name."""

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from workloads.generate.book_lines import book_lines
from workloads.generate.smart_plugs import smart_plugs
from workloads.generate.taxi_trips import taxi_trips

Kind = Callable[[int, int], Iterator[pa.RecordBatch]]
"""From a number of rows and a seed to these rows in batches."""

KINDS: Mapping[str, Kind] = {"debs2014": smart_plugs, "debs2015": taxi_trips, "text": book_lines}
