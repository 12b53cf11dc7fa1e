"""Types of `run.json` and `campaign.json`, and reading of the results of campaigns."""
