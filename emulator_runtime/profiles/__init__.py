"""Step times and memory of models: measured points (knots), interpolation between them, and the catalogue of GPU types."""
