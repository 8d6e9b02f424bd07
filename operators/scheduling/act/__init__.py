"""Starts and stops jobs: actuators, writes with preconditions, repetition until the loop's decision has been carried out."""
