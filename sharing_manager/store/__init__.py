"""The cluster-wide event log: ships the manager's events to Redis Streams, and looks up the progress of jobs."""

from sharing_manager.store.redis_store import RedisStore, StoreStatus, connect

__all__ = ["RedisStore", "StoreStatus", "connect"]
