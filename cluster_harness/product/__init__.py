"""The product on a cluster: the chart, its pools, and whether everything is ready."""
