"""The daemon of a node that owns its emulated GPUs: admission, arbitration, accounting, event log."""
