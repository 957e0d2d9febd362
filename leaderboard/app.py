"""The board: ``kvprune leaderboard [RESULTS ...]``, or ``streamlit run leaderboard/app.py -- [RESULTS ...]``.

Reads result files only; neither torch nor transformers is ever imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # `streamlit run` knows the script's own folder alone
    sys.path.insert(0, str(ROOT))

from leaderboard.views import PAGES  # noqa: E402
from leaderboard.views.layout import sidebar  # noqa: E402

#: bars that get shorter; an icon by name would be fetched from a server of Google's
ICON = Image.new("RGB", (32, 32), "white")
for place, length in enumerate((26, 18, 11, 6)):
    ICON.paste((59, 130, 196), (3, 4 + 7 * place, 3 + length, 8 + 7 * place))

st.set_page_config(page_title="KV-cache pruning board", page_icon=ICON, layout="wide")
VIEWS = ROOT / "leaderboard" / "views"
FIRST = next(iter(PAGES))
pages = [
    st.Page(VIEWS / f"{name}.py", title=title, icon=icon, url_path="" if name == FIRST else name, default=name == FIRST)
    for name, (title, icon) in PAGES.items()
]
# Streamlit has the first page at the root alone; who writes its name gets it too
pages.append(st.Page(VIEWS / f"{FIRST}.py", title=PAGES[FIRST][0], url_path=FIRST, visibility="hidden"))
page = st.navigation(pages)
sidebar()
page.run()
