"""Pictures of an HTML report: its top on a desk in the light, and its first failure on a phone in the dark.

python -m tests.report.screenshots REPORT.html FOLDER
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image

from tests.report.browser import open_browser

COLORS = 256  # of a picture, which keeps it small
VIEWS = {"desk-light": (1280, 1380, "light", ".skip"), "phone-dark": (360, 1120, "dark", "#failing-1")}


def main(page: Path, folder: Path) -> None:
    with open_browser() as browser:
        for name, (width, height, scheme, top) in VIEWS.items():
            browser.show(page, width, scheme, height)
            browser.run(f"document.querySelector('{top}').scrollIntoView()")
            path = folder / f"{name}.png"
            Image.open(io.BytesIO(browser.screenshot())).convert("RGB").quantize(
                COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
            ).save(path, optimize=True)
            print(f"{path}  {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
