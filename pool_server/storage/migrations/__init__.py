"""Brings a database to this version's tables, in one transaction, safe when two processes open it at once."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from pool_server.storage import StorageError

__all__ = ["migrate"]


def migrate(engine: sa.Engine) -> None:
    """Upgrade to the newest revision.

    Raises:
        StorageError: the database was written by a newer version.
    """
    config = Config()
    # Interpolation would read a % in the path.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    _use_wal(engine)
    with engine.begin() as connection:
        current = MigrationContext.configure(connection).get_current_heads()
        if current == tuple(scripts.get_heads()):
            return
        for revision in current:
            _require_known(scripts, revision)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _require_known(scripts: ScriptDirectory, revision: str) -> None:
    try:
        known = scripts.get_revision(revision)
    except CommandError as missing:
        raise _newer(revision) from missing
    if known is None:
        raise _newer(revision)


def _newer(revision: str) -> StorageError:
    return StorageError(
        f"the database is at revision {revision}, which this version does not know: it was written by a "
        "newer version; upgrade the server, or start it with another database"
    )


def _use_wal(engine: sa.Engine) -> None:
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        cursor.execute("pragma journal_mode=wal")
        cursor.fetchall()
        cursor.close()
    finally:
        raw.close()
