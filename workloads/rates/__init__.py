"""Rates of an agenda and their schedules: due times of a source's tuples."""

from workloads.rates.kinds import Bursts as Bursts
from workloads.rates.kinds import Constant as Constant
from workloads.rates.kinds import Max as Max
from workloads.rates.kinds import Poisson as Poisson
from workloads.rates.kinds import Rate as Rate
from workloads.rates.kinds import Replay as Replay
from workloads.rates.kinds import Sine as Sine
from workloads.rates.kinds import Steps as Steps
from workloads.rates.kinds import rate_of as rate_of
from workloads.rates.schedule import NS as NS
from workloads.rates.schedule import Schedule as Schedule
