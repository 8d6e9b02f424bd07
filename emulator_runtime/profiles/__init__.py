"""How long a training step takes and how much memory it needs: calibration knots, interpolation, the catalogue of GPUs."""
