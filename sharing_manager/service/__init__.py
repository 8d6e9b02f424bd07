"""Answers the requests on the manager's two sockets, within a time budget for each container."""
