"""Acts on an Allocate: each mints a new grant, since the kubelet says neither for whom it asks nor that it asked before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deviceplugin import container
from deviceplugin.container import ContainerReply, Offer
from deviceplugin.delivery import Delivery
from emulator_runtime.node.grant_files import GrantFiles
from emulator_runtime.node.layout import NodeLayout


class Allocator:
    """Mints grants in the node directory `layout`. Safe to call from several threads."""

    def __init__(self, layout: NodeLayout, grants: GrantFiles, delivery: Delivery, *, nvidia_smi: bool) -> None:
        self._layout = layout
        self._grants = grants
        self._delivery = delivery
        self._nvidia_smi = nvidia_smi

    def allocate(self, offer: Offer, requests: Sequence[Sequence[str]]) -> list[ContainerReply]:
        """A grant for each container, on disk when this returns; all or none.

        Raises InputError for ids that can't be had, OSError where the grant can't be written.
        """
        checked = [container.checked_ids(offer.resource, requested) for requested in requests]
        minted: list[str] = []
        try:
            return [self._grant(offer, device_ids, minted) for device_ids in checked]
        except OSError:
            for grant_id in minted:
                self._grants.remove(grant_id)
            raise

    def _grant(self, offer: Offer, device_ids: tuple[str, ...], minted: list[str]) -> ContainerReply:
        files = container.device_files(offer, device_ids)
        token, record = self._grants.mint(offer.resource.name, device_ids, files)
        minted.append(record.grant_id)
        edev = self._grants.edev_dir(record.grant_id)
        mounts = container.mounts(self._layout, edev, nvidia_smi=self._nvidia_smi, is_file=Path.is_file)
        return self._delivery.deliver(record.grant_id, container.environment(offer, device_ids, token), mounts)
