"""Results of campaigns: the store, `live.json`, metrics of runs and their energy."""
