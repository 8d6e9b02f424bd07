"""Synchronises the ranks of a distributed job over TCP: the first step, the end of each step, and a stop."""
