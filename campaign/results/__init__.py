"""Results of campaigns: the store, `live.json`, reasons to doubt a run, and bundles."""
