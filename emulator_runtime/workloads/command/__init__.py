"""The command `emugpu train`: its options, its environment in a pod, and its output."""
