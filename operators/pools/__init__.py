"""The controller of EmuGPUPools: decides which node has which emulated GPUs, and writes labels and one annotation of the Node."""
