"""Who uses a shared GPU when, and what else a node's jobs share: three engines. Pure: time is an argument, in emulated ns."""
