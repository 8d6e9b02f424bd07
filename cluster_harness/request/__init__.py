"""Parses the flags of `emugpu cluster up` into the specification of a cluster."""
