"""Results: the store, `live.json`, metrics of runs and their energy."""
