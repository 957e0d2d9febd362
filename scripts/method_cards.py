"""Write ``methods/cards.yaml``: what the built-in methods declare, for listings and a board that import no torch.

    python scripts/method_cards.py           # writes the file
    python scripts/method_cards.py --check   # exits with 1 if it is not what the classes say today

A plugin's methods are not in it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from methods import registry  # noqa: E402
from methods.cards import card  # noqa: E402

FILE = ROOT / "methods" / "cards.yaml"
HEAD = "# Written by scripts/method_cards.py from the methods' classes; edit those, and run it again.\n"


def text() -> str:
    """The content of the file: a card for each built-in method, in the registry's order."""
    cards = [card(registry.get(name)) for name in registry.BUILT_IN]
    return HEAD + yaml.safe_dump(cards, sort_keys=False, allow_unicode=True, width=118)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    made = text()
    if not parser.parse_args().check:
        FILE.write_text(made, encoding="utf-8")
        return 0
    if not FILE.is_file() or FILE.read_text(encoding="utf-8") != made:
        print(f"{FILE.name} is not what the methods declare; run python scripts/method_cards.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
