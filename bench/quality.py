"""How well redaction does on a folder of labelled rows: `quality.py DIR [--misses N]`.

DIR holds `NAME/public.jsonl[.gz]` and, where unsealed, `NAME/hidden.jsonl[.gz]` for the sets `secrets`,
`secrets_benign` and `pii`. A row counts as found when each of its values is gone from the redacted text (or,
where it names none, when the text changed); a look-alike counts as changed when a single character did.
"""

import argparse
import gzip
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pool_server.contract.redaction import Redactor

Row = dict[str, Any]

PII_KINDS = {"EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IP_ADDRESS"}


@dataclass
class Tally:
    """Rows seen, rows hit, and the rows that went wrong."""

    wanted: bool
    rows: int = 0
    hits: int = 0
    wrong: list[tuple[Row, str]] = field(default_factory=list)

    def add(self, row: Row, redacted: str, hit: bool) -> None:
        self.rows += 1
        self.hits += hit
        if hit != self.wanted:
            self.wrong.append((row, redacted))

    def line(self, name: str) -> str:
        verb = "found" if self.wanted else "changed"
        return f"{name:<58} {self.rows:>6} {verb:<8} {self.hits:>6} {self.hits / max(1, self.rows):>8.1%}"


def read(folder: Path, name: str) -> Iterator[Row]:
    for half in ("public", "hidden"):
        for path in (folder / name / f"{half}.jsonl", folder / name / f"{half}.jsonl.gz"):
            if path.exists():
                raw = path.read_bytes()
                text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
                yield from map(json.loads, filter(None, text.split("\n")))


def is_found(row: Row, redacted: str, values: list[str]) -> bool:
    return all(value not in redacted for value in values) if values else redacted != row["text"]


def secret_groups(row: Row) -> tuple[str, bool, list[str]]:
    part = "core" if row["core"] else "other"
    side = "secrets" if row["has_secret"] else "look-alikes"
    return f"secrets / {row['scoring']} / {part} / {side}", row["has_secret"], row["secrets"]


def benign_groups(row: Row) -> tuple[str, bool, list[str]]:
    apart = " / placeholder tokens" if "placeholder_token" in row["kind"] else ""
    return f"secrets_benign / {row['scoring']}{apart}", False, []


def pii_groups(row: Row) -> tuple[str, bool, list[str]]:
    if not row["has_pii"] or row["scoring"] == "policy":
        side = "kept by policy" if row["scoring"] == "policy" else "look-alikes"
        return f"pii / {row['scoring']} / {side}", False, []
    values = [span["value"] for span in row["spans"] if span["type"] in PII_KINDS and span["value"]]
    scope = "our kinds" if set(row["kind"].split("+")) <= PII_KINDS else "other kinds"
    return f"pii / {row['scoring']} / {scope}", True, values


SETS = {"secrets": secret_groups, "secrets_benign": benign_groups, "pii": pii_groups}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", action="store_true", help="one line per labelled kind too")
    parser.add_argument("--misses", type=int, default=0, metavar="N", help="show up to N wrong rows a group")
    options = parser.parse_args()
    groups: dict[str, Tally] = {}
    kinds: dict[str, Tally] = defaultdict(lambda: Tally(True))
    for name, grouping in SETS.items():
        spent, size = 0.0, 0
        for row in read(options.folder, name):
            group, wanted, values = grouping(row)
            began = time.perf_counter()
            redacted = Redactor().text(row["text"])
            spent += time.perf_counter() - began
            size += len(row["text"])
            hit = is_found(row, redacted, values) if wanted else redacted != row["text"]
            groups.setdefault(group, Tally(wanted)).add(row, redacted, hit)
            kinds.setdefault(f"{group} / {row['kind']}", Tally(wanted)).add(row, redacted, hit)
        print(f"{name}: {spent * 1000:.0f} ms for {size} characters")
    for group in sorted(groups):
        print(groups[group].line(group))
        show_misses(groups[group], options.misses)
        if options.kinds:
            for kind in sorted(each for each in kinds if each.startswith(f"{group} / ")):
                print(kinds[kind].line(f"    {kind[len(group) + 3 :]}"))


def show_misses(tally: Tally, limit: int) -> None:
    for row, redacted in tally.wrong[:limit]:
        print(f"      {row['kind']}: {row['text'][:220]!r}")
        print(f"        -> {redacted[:220]!r} {row.get('secrets') or row.get('spans') or ''!r:.200}")


if __name__ == "__main__":
    main()
