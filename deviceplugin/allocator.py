"""Handles Allocate calls. Each mints a new grant: a call says neither which pod it is for nor whether it is a repetition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deviceplugin.delivery import Delivery
from deviceplugin.resources.offer import ContainerReply, Mount, Offer
from emulator_runtime.cuda.build import REDIRECTOR
from emulator_runtime.cuda.container import container_environment
from emulator_runtime.node.grant_files import GrantFiles
from emulator_runtime.node.layout import CONTAINER_CUDA_DIR, NodeLayout


class Allocator:
    """Mints grants in the node directory `layout`. Thread-safe."""

    def __init__(self, layout: NodeLayout, grants: GrantFiles, delivery: Delivery) -> None:
        self._layout = layout
        self._grants = grants
        self._delivery = delivery

    def allocate(self, offer: Offer, requests: Sequence[Sequence[str]]) -> list[ContainerReply]:
        """Mint one grant for each container; all or none. They are on disk when this returns.

        Raises InputError for ids that can't be allocated, OSError if a grant can't be written.
        """
        checked = [offer.checked_ids(requested) for requested in requests]
        minted: list[str] = []
        try:
            return [self._grant(offer, device_ids, minted) for device_ids in checked]
        except OSError:
            for grant_id in minted:
                self._grants.remove(grant_id)
            raise

    def _grant(self, offer: Offer, device_ids: tuple[str, ...], minted: list[str]) -> ContainerReply:
        cuda = offer.cuda_settings(device_ids) if (self._layout.cuda_libraries / REDIRECTOR).is_file() else ""
        token, record = self._grants.mint(offer.name, device_ids, offer.device_files(device_ids), cuda)
        minted.append(record.grant_id)
        edev = self._grants.edev_dir(record.grant_id)
        mounts = offer.mounts(self._layout, edev, Path.is_file)
        variables = offer.environment(device_ids, token)
        if cuda:
            mounts += (Mount(str(self._grants.cuda_dir(record.grant_id)), CONTAINER_CUDA_DIR),)
            variables |= container_environment()
        return self._delivery.deliver(record.grant_id, variables, mounts)
