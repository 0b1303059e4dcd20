"""A scripted stand-in for a coding agent: no model, one known bug, one known fix.

It does what the contract asks of any agent: it finds its task in the file named by FORMICA_PROMPT_FILE, works
in the current folder, adds a test that fails without the fix, and exits 0.
"""

import os
import sys
from pathlib import Path

FIX = ("return sum(values) / len(values)", "return sum(values) / len(values) if values else 0.0")
MAIN_BLOCK = 'if __name__ == "__main__":'
TEST = """

class EmptyInputTest(unittest.TestCase):
    def test_mean_of_nothing_is_zero(self):
        self.assertEqual(mean([]), 0.0)
"""


def main() -> int:
    prompt = Path(os.environ["FORMICA_PROMPT_FILE"]).read_text(encoding="utf-8")
    if "ZeroDivisionError" not in prompt:
        print("scripted agent: the report is not the one this script knows; nothing changed")
        return 0
    source = Path("tally/stats.py")
    text = source.read_text(encoding="utf-8")
    if FIX[0] not in text:
        print("scripted agent: the code is not as expected", file=sys.stderr)
        return 1
    source.write_text(text.replace(*FIX), encoding="utf-8")
    tests = Path("tests/test_stats.py")
    before, main_block, after = tests.read_text(encoding="utf-8").partition(MAIN_BLOCK)
    cases = before.rstrip("\n") + "\n" + TEST
    tests.write_text(cases + ("\n\n" + main_block + after if main_block else ""), encoding="utf-8")
    print("scripted agent: wrote a failing test first, then the fix in tally/stats.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
