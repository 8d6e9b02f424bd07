"""Emulated CUDA libraries, in C, so that unmodified CUDA programs run on emulated GPUs."""
