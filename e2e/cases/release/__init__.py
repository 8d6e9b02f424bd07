"""The installed release over time: upgrades, maintenance of nodes, killed daemons and, as the last case, its removal."""
