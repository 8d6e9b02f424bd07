"""The output of a comparison: metrics, the table in the terminal, jobs.csv, summary.json and report.html."""
