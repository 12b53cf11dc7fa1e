"""CPU settings of a campaign: what its agenda asks for, what became of it, and what makes a run suspect."""
