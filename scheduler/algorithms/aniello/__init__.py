"""What the schedulers of Aniello, Baldoni and Querzoni (DEBS 2013) share: limits, what is outside the plan, packing."""
