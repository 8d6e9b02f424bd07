"""`emugpu sweep`: the plan of a sweep, its points evaluated in processes, statistics over seeds, the report."""
