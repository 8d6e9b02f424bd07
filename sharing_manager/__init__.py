"""The daemon of a node that owns its emulated GPUs: admission, arbitration, accounting and the event log."""
