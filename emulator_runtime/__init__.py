"""The library that runs in job containers, and the basic types that all programs share: emulated time, memory and devices."""
