"""Parts shared by the two schedulers of Aniello, Baldoni and Querzoni (DEBS 2013): limits, left-overs, packing."""
