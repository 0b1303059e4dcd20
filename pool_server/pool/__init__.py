"""The use cases: one service method for each operation, whatever surface it came through."""

from pool_server.pool.operations import BY_NAME, OPERATIONS, Operation
from pool_server.pool.service import Pool
from pool_server.pool.shapes import Outcome, PoolPolicy, Presented, Reply, Target

__all__ = [
    "BY_NAME",
    "OPERATIONS",
    "Operation",
    "Outcome",
    "Pool",
    "PoolPolicy",
    "Presented",
    "Reply",
    "Target",
]
