"""Emulated time: clocks, precise waiting for deadlines, lag histograms and device streams."""
