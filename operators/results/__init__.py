"""The results of jobs: observed from the nodes' event logs, compared with predictions, kept in a store of their own."""
