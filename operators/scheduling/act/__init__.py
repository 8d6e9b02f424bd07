"""Writes to the API server: how actuators start and stop jobs, with preconditions, repeated until a decision is carried out."""
