"""A user's own program on emulated GPUs: what `emugpu.gpu` offers."""
