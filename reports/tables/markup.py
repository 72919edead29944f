"""Tables of texts as Markdown and as LaTeX (booktabs)."""

from __future__ import annotations

import re
from collections.abc import Sequence

RULE = r"\midrule"
"""A line of a LaTeX table's body that sets groups of rows apart."""
_SPECIALS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "[": "{[}",  # would be an option of the line break before it
    "–": "--",
    "−": "$-$",
    **{char: "\\" + char for char in "&%$#_"},
}


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Rows of texts that are Markdown already. The first `left` columns hold words, the others
    numbers."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def latex_line(cells: Sequence[str]) -> str:
    """A row, of texts that are LaTeX already."""
    return " & ".join(cells) + r" \\"


def latex_table(
    head: Sequence[str], body: Sequence[str], caption: str, left: int = 1, size: Sequence[str] = ()
) -> str:
    """A floating table: `body` are lines of `latex_line` and RULE; `caption` is LaTeX, `head` is
    plain. The first `left` columns hold words. `size`: what goes before it to make it narrower."""
    columns = "l" * left + "r" * (len(head) - left)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            *(r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", *size),
            rf"\begin{{tabular}}{{{columns}}}",
            *(r"\toprule", latex_line([latex_escape(name) for name in head]), RULE),
            *(*body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""),
        ]
    )


def latex_escape(text: str) -> str:
    """Text as LaTeX shows it: every special character is escaped."""
    return "".join(_SPECIALS.get(char, char) for char in text.replace("\n", " "))


def markdown_escape(text: str) -> str:
    """Text as a Markdown table cell shows it."""
    text = re.sub(r"([\\`*|<>\[\]&])", r"\\\1", text.replace("\n", " "))
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)  # GFM leaves underscores inside words alone
