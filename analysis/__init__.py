"""Analysis of campaigns: a Spark job over the traces, statistics, figures and the HTML report."""
