"""The settings of the device plugin. The resources that it offers come from the inventory, not from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emulator_runtime.node.layout import DEFAULT_NODE_DIR
from emulator_runtime.node.settings import EnvSettings, setting

KUBELET_DIR = "/var/lib/kubelet/device-plugins"
"""Fixed by the kubelet (deviceplugin/v1beta1 constants.go); independent of its --root-dir."""


@dataclass(frozen=True)
class Settings(EnvSettings):
    """The variable EMUGPU_PLUGIN_<FIELD> sets each field. Raises InputError for a value of the wrong form."""

    PREFIX: ClassVar[str] = "EMUGPU_PLUGIN_"

    node_dir: str = setting("the node directory, with the same path on the host and here", DEFAULT_NODE_DIR)
    kubelet_dir: str = setting("directory of kubelet.sock and of the plugin's sockets", KUBELET_DIR)
    metrics_port: int = setting("port of /metrics, /healthz and /readyz; 0: none", 9401, most=65535)
    cdi_dir: str = setting("directory for CDI specs, used instead of mounts; empty: mounts", "")
    nvidia_smi: bool = setting(
        "1: mount the node directory's nvidia-smi into containers where it exists; 0: don't", default=True
    )
    host: bool = setting(
        "1: offer emugpu.dev/host, host slots for containers that train without a GPU; 0: don't", default=True
    )
