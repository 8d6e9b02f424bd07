"""`emugpu search`: the configuration of a training program that is fastest or cheapest."""
