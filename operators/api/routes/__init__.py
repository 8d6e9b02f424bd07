"""The API's paths, one file per subject; each answers from one snapshot of the source."""
