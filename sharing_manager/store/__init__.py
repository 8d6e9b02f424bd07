"""The cluster-wide event log: ships what the manager recorded on its node to Redis Streams, and looks up job progress."""

from sharing_manager.store.redis_store import RedisStore, StoreStatus, connect

__all__ = ["RedisStore", "StoreStatus", "connect"]
