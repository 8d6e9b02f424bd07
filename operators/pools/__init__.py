"""Makes EmuGPUPool objects true: which node has which emulated GPUs, written as labels and one annotation of the Node."""
