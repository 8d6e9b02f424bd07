"""The client of the API server: kubeconfigs, credentials, requests, caches fed by watches, and the formats of its JSON."""
