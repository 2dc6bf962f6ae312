"""Which tokens of which requests are computed next: decisions only."""

from radix_rs.scheduler.cache import Cache, CacheSequence
from radix_rs.scheduler.request import Request, Status
from radix_rs.scheduler.scheduler import Scheduler, Work
from radix_rs.scheduler.usage import StepUsage

__all__ = ["Cache", "CacheSequence", "Request", "Scheduler", "Status", "StepUsage", "Work"]
