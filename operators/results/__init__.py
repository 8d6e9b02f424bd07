"""What came of jobs: observed from the nodes' event logs, beside what was foretold, kept in a store of its own."""
