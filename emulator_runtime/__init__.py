"""The library inside a job container, and the vocabulary that all programs share."""
