"""Pages of essays to the one text that RULER's haystacks are cut from.

Source: RULER (arXiv:2404.06654), scripts/data/synthetic/json/download_paulgraham_essay.py: the
first <font> element of each page through html2text, plain texts as they are; plain texts come
first, each kind in the order of its file names, joined by nothing. Pages change, so no two
downloads are the same text; the samples' ids say which one was used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

_FONT = re.compile(r"<(/?)font\b[^>]*>", re.IGNORECASE)


def page_name(url: str) -> str:
    """The file name that orders a page: the address's last part, .html as .txt."""
    return urlsplit(url).path.rpartition("/")[2].replace(".html", ".txt")


def is_page(url: str) -> bool:
    """Whether the address is a page and not a plain text."""
    return ".html" in url


def in_reading_order(urls: Sequence[str]) -> list[str]:
    """Plain texts, then pages, each by file name; an address twice is taken once."""
    return sorted(dict.fromkeys(urls), key=lambda url: (is_page(url), page_name(url)))


def page_text(url: str, content: bytes) -> str:
    """The text of a page, or of a plain text. Bytes that are no UTF-8 are taken as Windows'
    Latin, which the older pages are in."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    if not is_page(url):
        return text
    from html2text import HTML2Text

    converter = HTML2Text()
    converter.ignore_images = converter.ignore_tables = True
    converter.mark_code = False
    return str(converter.handle(_first_font(text)))


def _first_font(html: str) -> str:
    """The first <font> element with all that is in it; the whole page if it has none."""
    start = depth = 0
    for tag in _FONT.finditer(html):
        if tag[1] and not depth:
            continue
        if not depth:
            start = tag.start()
        depth += -1 if tag[1] else 1
        if not depth:
            return html[start : tag.end()]
    return html[start:]
