"""The kubelet's PodResources API (package v1): the messages this project uses, and what protoc made of them."""
