"""Numbers in cluster, topology and traffic files: points, MB, rates, seconds.

They have an upper bound, so that no sum or square of them leaves the floating-point numbers.
"""

from typing import Annotated

from msgspec import Meta

MOST = 1e15
"""More is a slip of the keyboard."""

NonNegative = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(gt=0, le=MOST)]
