"""What a comparison leaves behind: metrics, the table, jobs.csv, summary.json and report.html."""
