"""Pictures of the board for the README: three PNGs under 300 KB each into docs/pictures.

    python scripts/board_pictures.py [RESULTS] [--out docs/pictures]

Needs Chromium with its driver, selenium and Pillow.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.board_browser import browser, missing, served, show  # noqa: E402

MOST = 300_000


class Picture(NamedTuple):
    """``at``: the heading that stands at the top."""

    name: str
    address: str
    dark: bool = False
    height: int = 1120
    at: str = ""


PICTURES = (
    Picture("overview", "/?benchmark=ruler"),
    Picture(
        "inside",
        "/inside?benchmark=needles&one=kvzap_mlp%20threshold%20tau%3D-1.996&other=streaming_llm%20head%200.75",
        at="Answers",
    ),
    Picture("adaptivity", "/adaptivity", dark=True),
)


def small(png: bytes) -> bytes:
    """The picture with as many colours as fit into :data:`MOST` bytes."""
    from PIL import Image

    if len(png) <= MOST:
        return png
    image = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64, 32):
        out = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        if out.tell() <= MOST:
            return out.getvalue()
    raise SystemExit(f"a picture has {out.tell():,} bytes with 32 colours; take a smaller window")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=ROOT / "results")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    arguments = parser.parse_args()
    if why := missing():
        raise SystemExit(why)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with served([arguments.results]) as address:
        for picture in PICTURES:
            page = picture.address.strip("/").partition("?")[0] or "overview"
            if not (ROOT / "leaderboard" / "views" / f"{page}.py").is_file():
                print(f"{picture.name}: there is no page {page}", file=sys.stderr)
                continue
            with browser(arguments.out, dark=picture.dark, height=picture.height) as driver:
                show(driver, address + picture.address)
                if picture.at:
                    heading = driver.find_element("xpath", f"//h3[normalize-space()='{picture.at}']")
                    driver.execute_script("arguments[0].scrollIntoView()", heading)
                time.sleep(2)  # charts fade in
                file = arguments.out / f"{picture.name}.png"
                file.write_bytes(small(driver.get_screenshot_as_png()))
                print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
