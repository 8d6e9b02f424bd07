"""What commands that compare policies have in common: arguments, inputs, output files, and the run on a real cluster."""
