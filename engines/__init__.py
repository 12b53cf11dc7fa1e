"""Other stream engines under the same placements: their installation, runs and load documents."""
