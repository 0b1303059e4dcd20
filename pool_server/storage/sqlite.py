"""SQLite behind the storage port: one writer thread with group commit, separate readers.

The writer takes what is queued (up to 64 functions), gives each a savepoint and commits them together with
``synchronous=FULL``, so that sixteen callers share one sync of the disk. A function that raises loses its own
savepoint only; when the engine itself ends the transaction (disk full, I/O error) the whole batch is refused.

A commit counts only while the files it went into are those at the database's path: what is written into a file
that was removed or replaced is gone with the process, so it is refused and never acknowledged.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import anyio
import sqlalchemy as sa

from pool_server.errors import Unavailable
from pool_server.storage import StorageError, Store
from pool_server.storage.driver import choose_driver, reader_engine, writer_engine
from pool_server.storage.migrations import migrate

__all__ = ["open_store"]

T = TypeVar("T")
BATCH = 64
PROOF_SECONDS = 1.0
"""How long a commit proves that there can be another."""
READERS = 8


@dataclass(slots=True)
class _Job:
    fn: Callable[[sa.Connection], Any]
    on_commit: Callable[[Any], None] | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = field(default=None)


def open_store(path: Path) -> Store:
    """The database at ``path``, made if absent and brought to this version's tables.

    Raises:
        StorageError: no usable SQLite, not a database, a newer database, or it cannot be opened.
    """
    driver = choose_driver()
    try:
        # WAL and shared-memory files take their mode from this one.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as denied:
        raise StorageError(f"cannot open {path}: {denied.strerror}") from denied
    writer = writer_engine(path, driver)
    try:
        migrate(writer)
    except (sa.exc.DBAPIError, driver.Error) as broken:
        writer.dispose()
        raise StorageError(f"cannot use {path}: {getattr(broken, 'orig', broken)}") from broken
    except StorageError:
        writer.dispose()
        raise
    return _SqliteStore(path, writer, reader_engine(path, driver, READERS), driver.Error)


class _SqliteStore:
    def __init__(
        self, path: Path, writer: sa.Engine, readers: sa.Engine, driver_error: type[Exception]
    ) -> None:
        self._files = _Files(path)
        self._proven = -math.inf
        # Raised as it is where SQLAlchemy is not in between, as when a connection is set up.
        self._driver_error = driver_error
        self._writer = writer
        self._readers = readers
        self._limiter = anyio.CapacityLimiter(READERS)
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def read(self, fn: Callable[[sa.Connection], T]) -> T:
        def run() -> T:
            try:
                with self._readers.begin() as connection:
                    return fn(connection)
            except sa.exc.DBAPIError as failed:
                raise _translated(failed) from failed
            except self._driver_error as failed:
                raise _unavailable(failed) from failed

        return await anyio.to_thread.run_sync(run, limiter=self._limiter)

    async def write(
        self, fn: Callable[[sa.Connection], T], *, on_commit: Callable[[T], None] | None = None
    ) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._gate:
            if self._closed:
                raise Unavailable("the server is stopping")
            self._queue.put(_Job(fn, on_commit, loop, future))
        return await future

    async def prove(self) -> None:
        if time.monotonic() - self._proven > PROOF_SECONDS:
            await self.write(_touch)

    async def close(self) -> None:
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        await anyio.to_thread.run_sync(self._thread.join)
        self._writer.dispose()
        self._readers.dispose()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            first = self._queue.get()
            batch = [] if first is None else [first]
            stopping = first is None
            while not stopping and len(batch) < BATCH:
                try:
                    job = self._queue.get_nowait()
                except Empty:
                    break
                if job is None:
                    stopping = True
                else:
                    batch.append(job)
            if batch:
                self._commit(batch)
                _report(batch)

    def _commit(self, batch: list[_Job]) -> None:
        try:
            with self._writer.begin() as connection:
                driver = connection.connection.driver_connection
                self._files.require_same(driver)
                for job in batch:
                    _perform(job, connection, driver)
            self._files.require_same(driver)
        except Exception as failed:  # noqa: BLE001 -- the thread's root: each caller gets the failure
            # Whatever a function itself raised was caught in _perform: this is the engine's.
            self._proven = -math.inf
            error = _unavailable(failed)
            for job in batch:
                job.error = error
            return
        self._proven = time.monotonic()
        for job in batch:
            if job.error is None and job.on_commit is not None:
                job.on_commit(job.result)


class _Files:
    """The database and its log as they were when they were opened, against what is at their paths now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._opened = _identity(path)
        self._connection: Any = None
        self._opened_log: tuple[int, int] | None = None

    def require_same(self, connection: Any) -> None:
        """Raises OSError when one was removed or replaced; inside a transaction the log exists."""
        if connection is not self._connection:
            self._connection, self._opened_log = connection, _identity(self._log)
        if _identity(self._path) != self._opened or _identity(self._log) != self._opened_log:
            raise OSError("the database's files were removed or replaced while they are open")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _touch(connection: sa.Connection) -> None:
    """A write that changes nothing but has to reach the disk."""
    version = connection.exec_driver_sql("pragma user_version").scalar_one()
    connection.exec_driver_sql(f"pragma user_version = {int(version)}")


def _perform(job: _Job, connection: sa.Connection, driver: Any) -> None:
    """Run one function in its savepoint; raises only when the whole transaction is lost.

    The savepoint goes to the driver directly, which costs a third of the same by SQLAlchemy.
    """
    driver.execute("SAVEPOINT job")
    try:
        job.result = job.fn(connection)
    except Exception as refused:  # noqa: BLE001 -- handed to the caller as it is
        job.error = _translated(refused)
        driver.execute("ROLLBACK TO job")
    driver.execute("RELEASE job")


def _translated(error: Exception) -> Exception:
    # A constraint is the service's business, and a wrong statement a bug; all else is the disk's or a lock's.
    bug = (sa.exc.IntegrityError, sa.exc.ProgrammingError, sa.exc.InterfaceError, sa.exc.DataError)
    return (
        _unavailable(error) if isinstance(error, sa.exc.DBAPIError) and not isinstance(error, bug) else error
    )


def _unavailable(cause: Exception) -> Unavailable:
    refusal = Unavailable("the database cannot be used at the moment", retry_after=2)
    refusal.__cause__ = cause
    return refusal


def _report(batch: list[_Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in batch:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver, jobs)
        except RuntimeError:
            # The loop is closed: nobody waits for these any more.
            continue


def _deliver(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.cancelled():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
