"""The resources that a node offers, and what a container that gets some of them sees: pure computation."""
