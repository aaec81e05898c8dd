"""The pooled HTTP client: `shared()` for a program, `owned()` for a call that leaves nothing behind."""

from velodrome.errors import CallError
from velodrome.http.client import SETTLED, Http, Reply
from velodrome.http.pools import close_shared, configure, owned, shared
from velodrome.http.retry import Retry, retry_after_s
from velodrome.http.streamed import Stream
from velodrome.http.target import Replicas, Target, excerpt

__all__ = [
    "SETTLED",
    "CallError",
    "Http",
    "Replicas",
    "Reply",
    "Retry",
    "Stream",
    "Target",
    "close_shared",
    "configure",
    "excerpt",
    "owned",
    "retry_after_s",
    "shared",
]
