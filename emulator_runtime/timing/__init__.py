"""Emulated time: clocks, precise waiting for deadlines, lag histograms and the time of programs."""
