"""What came of jobs: observed from the nodes' event logs, predicted by the simulator, kept in a store of its own."""
