"""Loaded by each Python that `emugpu trace --world-size` starts, as its folder comes first in PYTHONPATH.

Python loads one module of this name: the one that it would have loaded without this folder is run here.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

import emugpu_virtual_torch

_OWN = os.path.dirname(os.path.abspath(__file__))


def _run_hidden() -> None:
    others = [folder for folder in sys.path if os.path.abspath(folder or ".") != _OWN]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


emugpu_virtual_torch.install()
_run_hidden()
