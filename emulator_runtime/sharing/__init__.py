"""Who uses a shared GPU when: three engines that divide device time. Pure: time is an argument, in emulated nanoseconds."""
