"""The kubelet's device plugin API v1beta1: message definitions, and the code made from them."""
