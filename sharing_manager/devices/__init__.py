"""What a node has: its devices with their memory and leases, its inventory, and the pods' shares of its CPUs and memory."""
