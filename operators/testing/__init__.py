"""API servers for tests: a fake one that fails on request, and a real one where its binaries are at hand."""
