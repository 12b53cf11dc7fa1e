"""Numbers in cluster, topology and traffic files: points, MB, rates, seconds.

They have an upper bound, so that no sum or square of them overflows a float.
"""

from typing import Annotated

from msgspec import Meta

MOST = 1e15
"""Larger values are taken for typing errors."""

NonNegative = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(gt=0, le=MOST)]
