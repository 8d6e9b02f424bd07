"""Renders report.html: the texts, tables and charts of a comparison in one file."""
