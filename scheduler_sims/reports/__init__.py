"""The output of a comparison: metrics, the table in the terminal, jobs.csv and summary.json."""
