"""Readings of smart plugs in the schema of DEBS 2014.

A plug is read every 2 or 6 seconds, some readings arrive a second late or twice, and a plug may be silent for minutes.
A reading is a load and the work counter, which is the exact integral of the plug's mean load.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from workloads.generate.draws import Draws, Integers, stratified

FIRST_SECOND = 1377986401
HOUSES = 40
HOUSEHOLDS_OF_A_HOUSE = (1, 3, 4, 4, 6, 8, 11, 14, 18)
PLUGS_OF_A_HOUSEHOLD = (1, 3, 4, 5, 7, 8, 11, 13, 14)
MOST_PLUGS = 14
"""Quantiles at equal distances, as are those below."""

PERIODS_S = (2, 6)
PERIOD_SHARES = (76, 24)
LATE, TWICE, SILENT = 300_000, 26_000, 2_500
NO_WORK, NO_LOAD, WORK_FIRST = 5_000, 5_000, 279_000
"""So many in a million readings; of `SILENT`, in a million plugs and spells of `SILENCE_S`."""

SILENCE_S = 128
KINDS = ("off", "on", "cycling")
KIND_SHARES = (48, 33, 19)
LEVEL_MW = (
    *(2_300, 4_500, 6_300, 8_000, 9_800, 11_700, 13_900, 17_200, 19_800),
    *(24_400, 29_800, 36_600, 47_300, 71_500, 175_000, 283_700, 635_700),
)
CHANGE_PPM = (0, 7_000, 16_000, 26_000, 38_000, 54_000, 76_000, 117_000, 400_000)
"""Of a reading against its plug's mean load, either way."""

CYCLE_S = (600, 1_500, 1_900, 2_900, 4_700)
ON_S = (60, 60, 60, 120, 540)
FIRST_WH = (161, 355, 962, 982, 3_216, 3_216, 11_721, 68_451, 173_860)

_CHUNK_S = 256
_MJ_OF_A_WH = 3_600_000


class Plugs:
    """All plugs of a seed, each attribute an array with one value per plug."""

    def __init__(self, seed: int) -> None:
        def drawn(kind: str) -> Draws:
            return Draws(seed, f"plugs {kind}")

        households = stratified(drawn("households"), HOUSES, HOUSEHOLDS_OF_A_HOUSE)
        house = np.repeat(np.arange(HOUSES), households)
        household = np.concatenate([np.arange(count) for count in households])
        plugs = stratified(drawn("plugs"), len(house), PLUGS_OF_A_HOUSEHOLD)
        self.house, self.household = np.repeat(house, plugs), np.repeat(household, plugs)
        self.plug = np.concatenate([_some(drawn("ids"), at, count) for at, count in enumerate(plugs)])
        self.count = len(self.plug)
        every = np.arange(self.count)
        self.period = np.array(PERIODS_S)[drawn("periods").by_share(every, PERIOD_SHARES)]
        self.phase = drawn("phases").below(every, self.period // 2) * 2
        self.kind = drawn("kinds").by_share(every, KIND_SHARES)
        self.level_mw = drawn("levels").by_quantiles(every, LEVEL_MW)
        self.cycle = drawn("cycles").by_quantiles(every, CYCLE_S)
        self.on = drawn("on").by_quantiles(every, ON_S)
        self.offset = drawn("offsets").below(every, self.cycle)
        self.first_wh = drawn("counters").by_quantiles(every, FIRST_WH)

    def on_seconds(self, plug: Integers, second: Integers) -> Integers:
        """Return how long a plug has been on, from second 0 to before `second`."""
        cycle, on, offset = self.cycle[plug], self.on[plug], self.offset[plug]
        cycling = _on_in_cycles(second + offset, cycle, on) - _on_in_cycles(offset, cycle, on)
        return np.choose(self.kind[plug], [np.zeros_like(second), second, cycling])

    def is_on(self, plug: Integers, second: Integers) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return whether a plug is on during `second`."""
        return self.on_seconds(plug, second + 1) > self.on_seconds(plug, second)


def smart_plugs(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `rows` rows of a seed, in batches."""
    plugs = Plugs(seed)
    done, begin = 0, 0
    while done < rows:
        batch = _chunk(plugs, seed, begin, done + 1).slice(0, rows - done)
        done += len(batch)
        begin += _CHUNK_S
        yield batch


def _chunk(plugs: Plugs, seed: int, begin: int, first_id: int) -> pa.RecordBatch:
    second, plug = _readings(plugs, seed, begin)
    reading = (second * plugs.count + plug) * 2
    # A second reading in the same second has a number of its own.
    reading[1:] += reading[1:] == reading[:-1]

    def drawn(kind: str) -> Draws:
        return Draws(seed, f"readings {kind}")

    level = np.where(plugs.is_on(plug, second), plugs.level_mw[plug], 0)
    change = drawn("changes").by_quantiles(reading, CHANGE_PPM)
    sign = drawn("signs").below(reading, 2) * 2 - 1
    load = (level + level * change * sign // 1_000_000) / 1000
    work = (plugs.first_wh[plug] + plugs.level_mw[plug] * plugs.on_seconds(plug, second) // _MJ_OF_A_WH) / 1000
    work_first = drawn("orders").happens(reading, WORK_FIRST)
    values = np.stack([np.where(work_first, work, load), np.where(work_first, load, work)], axis=1).ravel()
    is_load = np.stack([~work_first, work_first], axis=1).ravel()
    missing = drawn("missing").below(reading, 1_000_000)
    no_work, no_load = missing < NO_WORK, missing >= 1_000_000 - NO_LOAD
    kept = ~np.where(is_load, np.repeat(no_load, 2), np.repeat(no_work, 2))
    of = np.repeat(plug, 2)[kept]
    count = int(kept.sum())
    columns = {
        "id": np.arange(first_id, first_id + count),
        "timestamp": np.repeat(second, 2)[kept] + FIRST_SECOND,
        "value": values[kept],
        "property": is_load[kept].astype(np.int8),
        "plug_id": plugs.plug[of],
        "household_id": plugs.household[of],
        "house_id": plugs.house[of],
    }
    return pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})


def _readings(plugs: Plugs, seed: int, begin: int) -> tuple[Integers, Integers]:
    """Return seconds and plugs of the readings from `begin` on, in order of time, then of plugs."""
    seconds = np.arange(max(0, begin - 1), begin + _CHUNK_S)
    at, plug = np.nonzero(seconds[:, None] % plugs.period == plugs.phase)
    second = seconds[at]
    meant = second * plugs.count + plug
    second = second + Draws(seed, "readings late").happens(meant, LATE)
    spell = (second // SILENCE_S) * plugs.count + plug
    here = (second >= begin) & (second < begin + _CHUNK_S) & ~Draws(seed, "silences").happens(spell, SILENT)
    second, plug, meant = second[here], plug[here], meant[here]
    order = np.argsort(second * plugs.count + plug, kind="stable")
    times = 1 + Draws(seed, "readings twice").happens(meant[order], TWICE)
    return np.repeat(second[order], times), np.repeat(plug[order], times)


def _on_in_cycles(second: Integers, cycle: Integers, on: Integers) -> Integers:
    seconds: Integers = second // cycle * on + np.minimum(second % cycle, on)
    return seconds


def _some(draws: Draws, household: int, count: int) -> Integers:
    """Return numbers of the plugs of a household."""
    order = np.argsort(draws.bits(np.arange(MOST_PLUGS) + household * MOST_PLUGS), kind="stable")
    return np.sort(order[:count])
