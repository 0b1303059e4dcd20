"""How good the rules' judgement is, measured on labelled reports outside the repository.

    python bench/judgement.py DIR [--half public|hidden] [--misses N]

DIR holds a folder for each set with {public,hidden}.jsonl[.gz]; sets that are absent are skipped:

* issues_nlbse24: title, body, label (bug, enhancement or feature, question)
* issue_environment: title, text, accept (the environments that count as right)
* issue_threads: title, body, label, env_accept
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from formica.rules.classification import KINDS, classify
from formica.rules.environment import ENVIRONMENTS, extract, judge

Row = dict[str, Any]
GOALS = {"kind": 0.65, "environment": 0.85}


def read(folder: Path, half: str) -> Iterator[Row]:
    """The rows of a set, from the plain or the packed file."""
    for name, opener in ((f"{half}.jsonl", open), (f"{half}.jsonl.gz", gzip.open)):
        path = folder / name
        if path.exists():
            with opener(path, "rt", encoding="utf-8") as lines:
                yield from (json.loads(line) for line in lines if line.strip())
            return


def macro_f1(pairs: list[tuple[str, str]], classes: tuple[str, ...]) -> dict[str, float]:
    """F1 of each class and their mean; pairs are (gold, answer)."""
    scores = {}
    for name in classes:
        hits = sum(1 for gold, answer in pairs if gold == answer == name)
        answered = sum(1 for _, answer in pairs if answer == name)
        present = sum(1 for gold, _ in pairs if gold == name)
        scores[name] = 2 * hits / (answered + present) if answered + present else 0.0
    return {**scores, "macro": sum(scores.values()) / len(classes)}


def print_kind(name: str, rows: list[Row], misses: int) -> None:
    pairs, sure, wrong = [], [], []
    security, began = 0, time.perf_counter()
    for row in rows:
        gold = str(row["label"]).replace("feature", "enhancement")
        found = classify(row["title"], row["body"] or "")
        pairs.append((gold, found.kind))
        sure.append((found.confidence, found.kind == gold))
        security += found.security
        if found.kind != gold:
            wrong.append((found.confidence, gold, found.kind, row["title"], found.reasons))
    milliseconds = (time.perf_counter() - began) / len(rows) * 1_000
    scores = macro_f1(pairs, KINDS)
    print(f"\n{name}: kind of {len(rows)} reports, {milliseconds:.1f} ms each")
    print(f"  macro F1 {scores['macro']:.3f} (goal {GOALS['kind']})  " + _each(scores))
    counts = Counter(pairs)
    print(f"  {'gold/answer':14}" + "".join(f"{kind:>13}" for kind in KINDS))
    for gold in KINDS:
        print(f"  {gold:14}" + "".join(f"{counts[gold, kind]:13}" for kind in KINDS))
    print_calibration(sure)
    print(f"  taken for security reports: {security} ({security / len(rows):.1%})")
    for confidence, gold, kind, title, reasons in sorted(wrong, reverse=True)[:misses]:
        print(f"  {confidence:.2f} {gold} taken for {kind}: {title[:70]} ({'; '.join(reasons[:2])})")


def _each(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {score:.3f}" for name, score in scores.items() if name != "macro")


def print_calibration(sure: list[tuple[float, bool]]) -> None:
    """Confidence against how often it was right, in tenths."""
    error = 0.0
    for low in range(3, 10):
        band = [(c, ok) for c, ok in sure if low / 10 <= c < (low + 1) / 10 or (low == 9 and c == 1.0)]
        if band:
            mean, right = sum(c for c, _ in band) / len(band), sum(ok for _, ok in band) / len(band)
            error += len(band) / len(sure) * abs(mean - right)
            print(f"  confidence {low / 10:.1f}: {len(band):5} answers, mean {mean:.2f}, right {right:.2f}")
    top = sorted(sure, reverse=True)[: len(sure) // 2]
    surest = sum(ok for _, ok in top) / max(len(top), 1)
    print(f"  calibration error {error:.3f}, precision on the surest half {surest:.3f}")


def print_environment(name: str, rows: list[Row], misses: int) -> None:
    text_field = "text" if "text" in rows[0] else "body"
    accept_field = "accept" if "accept" in rows[0] else "env_accept"
    right, wrong, unknown = 0, [], Counter[str]()
    began = time.perf_counter()
    for row in rows:
        found = judge(extract(row["title"], row[text_field] or "", row), None)
        accepted = row[accept_field]
        gold = row.get("gold") or row.get("env")
        right += found.kind in accepted
        unknown["answered"] += found.kind == "unknown"
        unknown["present"] += gold == "unknown"
        unknown["hit"] += found.kind == "unknown" and "unknown" in accepted
        unknown["found"] += found.kind == gold == "unknown"
        if found.kind not in accepted:
            wrong.append((accepted, found.kind, row["title"], found.evidence))
    milliseconds = (time.perf_counter() - began) / len(rows) * 1_000
    print(f"\n{name}: environment of {len(rows)} reports, {milliseconds:.1f} ms each")
    print(f"  accepted {right / len(rows):.3f} (goal {GOALS['environment']}) of {', '.join(ENVIRONMENTS)}")
    print(
        f"  unknown: precision {unknown['hit'] / max(unknown['answered'], 1):.3f}, "
        f"recall {unknown['found'] / max(unknown['present'], 1):.3f}"
    )
    for accepted, kind, title, evidence in wrong[:misses]:
        print(f"  {'/'.join(accepted)} taken for {kind}: {title[:70]} ({'; '.join(evidence)})")


def main() -> None:
    parser = argparse.ArgumentParser(description="How good the rules' judgement is.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--half", default="public", help="which half of each set: public (default), hidden")
    parser.add_argument(
        "--misses", type=int, default=0, metavar="N", help="show the N worst misses of each set"
    )
    options = parser.parse_args()
    seen = 0
    for name in ("issues_nlbse24", "issue_environment", "issue_threads"):
        rows = list(read(options.folder / name, options.half))
        seen += len(rows)
        if rows and "label" in rows[0]:
            print_kind(name, rows, options.misses)
        if rows and ("accept" in rows[0] or "env_accept" in rows[0]):
            print_environment(name, rows, options.misses)
    if not seen:
        parser.error(f"no set found in {options.folder}")


if __name__ == "__main__":
    main()
