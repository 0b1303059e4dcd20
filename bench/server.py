"""Durable ``POST /issues/submit`` per second, beside what SQLite itself gives with the same group commit.

Usage: python bench/server.py [--seconds 10] [--clients 16]. Loopback only; everything it writes is removed.
The floor writes ten rows and 3 KB a transaction, as a submission does, from as many threads, straight into
SQLite with ``synchronous=FULL``; clients and server share this machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pool_server.storage.driver import choose_driver
from tests.servers import PoolServer

WARM_UP_SECONDS = 1.0
ROWS, ROW_BYTES, BATCH = 10, 300, 64
REPORT = {
    "title": "Import fails when the file has a byte order mark",
    "body": "Reading a CSV with a byte order mark raises KeyError: '\\ufeffid'. " * 20,
    "kind": "bug",
    "reporter_git_sha": "4f0c2d1a9b8e7f6d5c4b3a29180f7e6d5c4b3a29",
    "labels": ["csv"],
}
TARGET_RATE, TARGET_P99 = 150.0, 150.0


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def client(host: str, port: int, until: float, warm: float, taken: list[float]) -> None:
    """One keep-alive connection that submits one report after the other."""
    body = json.dumps(REPORT).encode()
    head = (
        f"POST /issues/submit HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        while (started := time.perf_counter()) < until:
            writer.write(head + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            status = int(answer.split(b" ", 2)[1])
            length = next(
                int(line.partition(b":")[2])
                for line in answer.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            await reader.readexactly(length)
            if status != 201:
                raise SystemExit(f"unexpected answer: {answer.decode()}")
            if started >= warm:
                taken.append(time.perf_counter() - started)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def submits(url: str, clients: int, seconds: float) -> list[float]:
    """Latencies in seconds of every submission answered within the time, after a warm-up."""
    host, _, port = url.removeprefix("http://").partition(":")
    warm = time.perf_counter() + WARM_UP_SECONDS
    taken: list[float] = []
    await asyncio.gather(*(client(host, int(port), warm + seconds, warm, taken) for _ in range(clients)))
    return taken


def floor(path: Path, writers: int, seconds: float) -> list[float]:
    """Latencies of the same amount of rows, from ``writers`` threads through one group-committing writer."""
    driver: Any = choose_driver()
    queue: SimpleQueue[threading.Event | None] = SimpleQueue()
    filler = "x" * ROW_BYTES

    def commit() -> None:
        connection = driver.connect(str(path), isolation_level=None, check_same_thread=False)
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=full")
        connection.execute("create table row(id integer primary key, a text, b text)")
        stopping = False
        while not stopping:
            batch = [queue.get()]
            while len(batch) < BATCH:
                try:
                    batch.append(queue.get_nowait())
                except Empty:
                    break
            stopping = None in batch
            waiting = [done for done in batch if done is not None]
            connection.execute("begin immediate")
            for _ in waiting:
                for _ in range(ROWS):
                    connection.execute("insert into row(a, b) values (?, ?)", ("n", filler))
            connection.execute("commit")
            for done in waiting:
                done.set()
        connection.close()

    taken: list[float] = []
    until = time.perf_counter() + seconds

    def write() -> None:
        while (started := time.perf_counter()) < until:
            done = threading.Event()
            queue.put(done)
            done.wait()
            taken.append(time.perf_counter() - started)

    committer = threading.Thread(target=commit)
    committer.start()
    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.put(None)
    committer.join()
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=16)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pool-bench-") as folder:
        with PoolServer(Path(folder), {"POOL_RATE_ANONYMOUS_PER_MINUTE": "0"}) as server:
            taken = asyncio.run(submits(server.url, chosen.clients, chosen.seconds))
            server.stop()
        least = floor(Path(folder) / "floor.sqlite3", chosen.clients, min(chosen.seconds, 5))
    rate, floor_rate = len(taken) / chosen.seconds, len(least) / min(chosen.seconds, 5)
    p50, p99 = percentile(taken, 0.5) * 1000, percentile(taken, 0.99) * 1000
    floor_p50, floor_p99 = percentile(least, 0.5) * 1000, percentile(least, 0.99) * 1000
    print(f"{chosen.clients} keep-alive clients, {chosen.seconds:g} s, synchronous=FULL")
    print(f"POST /issues/submit    {rate:7.0f} /s   p50 {p50:6.1f} ms   p99 {p99:6.1f} ms")
    print(f"SQLite group commit    {floor_rate:7.0f} /s   p50 {floor_p50:6.1f} ms   p99 {floor_p99:6.1f} ms")
    print(f"ratio                  {rate / floor_rate:7.2f}")
    met = rate >= TARGET_RATE and p99 < TARGET_P99
    print(
        f"target: at least {TARGET_RATE:.0f} /s, p99 under {TARGET_P99:.0f} ms: {'met' if met else 'MISSED'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
