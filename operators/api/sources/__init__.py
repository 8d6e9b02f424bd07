"""Where the API's facts come from: a cluster, or what `emugpu compare` has left on a laptop."""
