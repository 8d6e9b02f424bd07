"""End-to-end cases: each checks a promise of the README on a real cluster."""
