"""The sources of the API's data: a cluster, or the output of `emugpu compare` on a laptop."""
