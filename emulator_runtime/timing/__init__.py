"""Emulated time: clocks, precise waiting until deadlines, the lag account and device streams."""
