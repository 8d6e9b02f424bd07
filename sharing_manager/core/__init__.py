"""The manager's decisions about grants, leases, memory and progress, without sockets, threads or the host's clock."""
