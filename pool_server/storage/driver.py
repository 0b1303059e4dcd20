"""Which SQLite to use, and how a connection is set up."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import sqlalchemy as sa

from pool_server.storage import StorageError

# The interpreter's own is last: many are built without extension loading, which vector search needs.
_DRIVERS = ("pysqlite3", "sqlean", "sqlite3")
BUSY_TIMEOUT_SECONDS = 10
_WRITER_PRAGMAS = (
    "pragma synchronous=full",
    "pragma foreign_keys=on",
    # The default of 1,000 pages put a checkpoint into every hundredth commit: p99 10 ms instead of 3.
    "pragma wal_autocheckpoint=8000",
    "pragma journal_size_limit=67108864",
    "pragma cache_size=-32768",
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_READER_PRAGMAS = ("pragma query_only=on", "pragma cache_size=-16384")


def choose_driver() -> ModuleType:
    """The first SQLite module that can load extensions.

    Raises:
        StorageError: there is none.
    """
    for name in _DRIVERS:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module.Connection, "enable_load_extension"):
            return module
    raise StorageError(
        "no SQLite that can load extensions: install pysqlite3-binary or sqlean.py into this environment"
    )


def writer_engine(path: Path, driver: ModuleType) -> sa.Engine:
    """One connection at a time, each transaction ``BEGIN IMMEDIATE``."""
    return _engine(path, driver, _WRITER_PRAGMAS, begin="BEGIN IMMEDIATE", connections=1)


def reader_engine(path: Path, driver: ModuleType, connections: int) -> sa.Engine:
    """Read-only connections; each transaction sees one snapshot."""
    return _engine(path, driver, _READER_PRAGMAS, begin="BEGIN", connections=connections)


def _engine(
    path: Path, driver: ModuleType, pragmas: tuple[str, ...], *, begin: str, connections: int
) -> sa.Engine:
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        module=driver,
        pool_size=connections,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_SECONDS},
        json_serializer=_ENCODER.encode,
        # An error would carry a report's text into the log.
        hide_parameters=True,
    )

    def connected(connection: Any, _record: Any) -> None:
        # Else the driver begins by itself, and not before DDL.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()

    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "begin", begun)
    return engine
