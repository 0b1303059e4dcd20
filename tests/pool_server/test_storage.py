"""SQLite behind the port: group commit, isolation, migrations, and what happens when the disk says no."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from pool_server.errors import Unavailable
from pool_server.storage import StorageError, Store
from pool_server.storage.driver import choose_driver
from pool_server.storage.sqlite import open_store
from pool_server.storage.tables import api_keys, metadata
from tests.pool_server.pools import opened, story


def _key(name: str) -> dict[str, Any]:
    return {
        "key_id": name, "handle": name, "folded_handle": name, "digest": name, "role": "member", "tier": "free",
        "created_at": "2026-11-30T12:00:00.000000Z",
    }  # fmt: skip


def _insert(name: str) -> Any:
    return lambda connection: connection.execute(sa.insert(api_keys), _key(name)) and name


def _names(connection: sa.Connection) -> list[str]:
    return list(connection.execute(sa.select(api_keys.c.handle).order_by(api_keys.c.handle)).scalars())


async def _stored(path: Path) -> list[str]:
    store = await opened(path)
    try:
        return await store.read(_names)
    finally:
        await store.close()


async def test_a_failing_write_does_not_touch_its_neighbours(tmp_path: Path) -> None:
    """Good and bad ones queued together: every good one is there, every bad one raised."""
    store = await opened(tmp_path / "p.sqlite3")

    def broken(connection: sa.Connection) -> None:
        connection.execute(sa.insert(api_keys), _key("half"))
        raise ValueError("on purpose")

    jobs = [_insert("a"), _insert("a"), broken, _insert("b"), _insert("b"), _insert("c")]
    outcomes = await asyncio.gather(*(store.write(job) for job in jobs), return_exceptions=True)
    assert [type(each).__name__ for each in outcomes] == [
        "str", "IntegrityError", "ValueError", "str", "IntegrityError", "str",
    ]  # fmt: skip
    await store.close()
    assert await _stored(tmp_path / "p.sqlite3") == ["a", "b", "c"]


async def test_what_was_answered_is_on_disk(tmp_path: Path) -> None:
    """A process that is killed right after an answer has lost nothing of it."""
    program = f"""
import asyncio, os, sqlalchemy as sa
from pathlib import Path
from pool_server.storage.sqlite import open_store
from pool_server.storage.tables import api_keys
row = {_key("x")!r}
async def main():
    store = open_store(Path({str(tmp_path / "p.sqlite3")!r}))
    await store.write(lambda connection: connection.execute(sa.insert(api_keys), row) and None)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=False)
    assert ended.returncode == -9
    assert await _stored(tmp_path / "p.sqlite3") == ["x"]


async def test_close_finishes_what_is_queued(tmp_path: Path) -> None:
    """And refuses what comes later; closing twice is closing."""
    store = await opened(tmp_path / "p.sqlite3")
    names = [f"{number:03}" for number in range(200)]
    writes = [asyncio.ensure_future(store.write(_insert(name))) for name in names]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*writes) == names
    with pytest.raises(Unavailable):
        await store.write(_insert("late"))
    await store.close()
    assert await _stored(tmp_path / "p.sqlite3") == names


async def test_a_commit_is_told_before_the_caller_is(tmp_path: Path) -> None:
    """``on_commit`` sees the result of what is durable, and nothing of what failed."""
    store = await opened(tmp_path / "p.sqlite3")
    told: list[str] = []
    assert await store.write(_insert("a"), on_commit=told.append) == "a"
    with pytest.raises(sa.exc.IntegrityError):
        await store.write(_insert("a"), on_commit=told.append)
    assert told == ["a"]
    await store.close()


async def test_a_cancelled_caller_does_not_stop_the_writer(tmp_path: Path) -> None:
    """Its own write may still happen; everybody else's does."""
    store = await opened(tmp_path / "p.sqlite3")
    writes = [asyncio.ensure_future(store.write(_insert(str(number)))) for number in range(9)]
    await asyncio.sleep(0)
    writes[4].cancel()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(each, str) for each in outcomes) == 8
    assert await store.write(_insert("after")) == "after"
    await store.close()


async def test_readers_cannot_write_and_see_one_snapshot(tmp_path: Path) -> None:
    """A write through a read is refused by the engine itself."""
    store = await opened(tmp_path / "p.sqlite3")
    with pytest.raises(Unavailable):
        await store.read(_insert("a"))
    await asyncio.gather(
        *(store.write(_insert(str(n))) for n in range(20)), *(store.read(_names) for _ in range(40))
    )
    assert len(await store.read(_names)) == 20
    await store.close()


def _limit_pages(store: Store, pages: int) -> Any:
    return store.write(
        lambda connection: connection.exec_driver_sql(f"pragma max_page_count={pages}").scalar()
    )


async def test_a_full_database_is_unavailable_and_never_half_written(tmp_path: Path) -> None:
    """The caller may come back; when there is room again, everything works."""
    async with story(tmp_path / "p.sqlite3") as told:
        await told.submit()
        used = await told.store.read(
            lambda connection: connection.exec_driver_sql("pragma page_count").scalar()
        )
        assert isinstance(used, int)
        await _limit_pages(told.store, used + 2)
        large = {"title": "t", "body": "x y " * 16_000, "reporter_git_sha": "abcdef0"}
        refused = await told.refused(Unavailable, told.anonymous, "submit_issue", **large)
        assert refused.retry_after >= 1
        outcomes = await asyncio.gather(
            *(told.call(told.anonymous, "submit_issue", **large) for _ in range(5)), return_exceptions=True
        )
        assert {type(each) for each in outcomes} == {Unavailable}
        assert (await told.rows())["issues"] == 1
        await _limit_pages(told.store, 1_000_000)
        assert (await told.submit()).body["issue_number"] == 2


async def test_a_lock_that_clears_is_waited_for(tmp_path: Path) -> None:
    """Another process may write in between, as ``pool-server key create`` does."""
    store = await opened(tmp_path / "p.sqlite3")
    other = sa.create_engine(f"sqlite:///{tmp_path / 'p.sqlite3'}", module=choose_driver())
    with other.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.write(_insert("a")))
        await asyncio.sleep(0)
        connection.execute(sa.insert(api_keys), _key("other"))
        connection.commit()
    other.dispose()
    assert await waiting == "a"
    assert await store.read(_names) == ["a", "other"]
    await store.close()


def test_migrations_make_the_tables_the_code_knows(tmp_path: Path) -> None:
    """Nothing is missing and nothing is left over; opening again changes nothing."""
    for _ in range(2):
        asyncio.run(open_store(tmp_path / "p.sqlite3").close())
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'p.sqlite3'}", module=choose_driver())
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert connection.exec_driver_sql("pragma journal_mode").scalar() == "wal"
    engine.dispose()
    assert stat.S_IMODE((tmp_path / "p.sqlite3").stat().st_mode) == 0o600


def test_two_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    """One migrates, the others wait."""
    program = (
        "import asyncio; from pathlib import Path; from pool_server.storage.sqlite import open_store;"
        f"asyncio.run(open_store(Path({str(tmp_path / 'p.sqlite3')!r})).close())"
    )
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    assert [process.wait(60) for process in running] == [0, 0, 0, 0]


def test_a_newer_database_is_refused_in_words(tmp_path: Path) -> None:
    """Its data are not touched."""
    path = tmp_path / "p.sqlite3"
    asyncio.run(open_store(path).close())
    engine = sa.create_engine(f"sqlite:///{path}", module=choose_driver())
    with engine.begin() as connection:
        connection.exec_driver_sql("update alembic_version set version_num = '9999'")
    engine.dispose()
    with pytest.raises(StorageError, match="newer version"):
        open_store(path)


def test_what_is_no_database_is_refused_in_words(tmp_path: Path) -> None:
    """A file of something else, and a folder that is not there."""
    (tmp_path / "text").write_text("not a database, " * 100)
    for path in (tmp_path / "text", tmp_path / "absent" / "p.sqlite3"):
        with pytest.raises(StorageError, match=str(path)):
            open_store(path)


async def test_files_that_were_moved_away_take_no_writes(tmp_path: Path) -> None:
    """What would be written into a file nobody can find again is refused; put back, it goes on."""
    path, aside = tmp_path / "p.sqlite3", tmp_path / "aside"
    store = await opened(path)
    await store.write(_insert("before"))
    path.rename(aside)
    with pytest.raises(Unavailable):
        await store.write(_insert("away"))
    with pytest.raises(Unavailable):
        await store.prove()
    aside.rename(path)
    await store.prove()
    await store.write(_insert("after"))
    await store.close()
    assert await _stored(path) == ["after", "before"]


@pytest.mark.parametrize("name", ["p.sqlite3", "p.sqlite3-wal"])
@pytest.mark.parametrize("replaced", [True, False])
async def test_files_that_were_removed_or_replaced_take_no_writes(
    tmp_path: Path, name: str, replaced: bool
) -> None:
    """Database and log alike: what is acknowledged is in what is at the path."""
    store = await opened(tmp_path / "p.sqlite3")
    await store.write(_insert("before"))
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    if replaced:
        (tmp_path / "other").write_bytes(content)
        (tmp_path / "other").rename(tmp_path / name)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await store.write(_insert("lost"))
    await store.close()


async def test_a_failed_commit_ends_the_proof(tmp_path: Path) -> None:
    """At once, not when the last good one has grown old."""
    path = tmp_path / "p.sqlite3"
    store = await opened(path)
    await store.write(_insert("before"))
    await store.prove()
    path.unlink()
    with pytest.raises(Unavailable):
        await store.write(_insert("lost"))
    with pytest.raises(Unavailable):
        await store.prove()
    await store.close()
