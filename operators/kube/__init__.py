"""The border to the API server: client, kubeconfigs, caches fed by watches, work queue, leader election, writes, metrics."""
