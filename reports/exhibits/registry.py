"""All exhibits by name, paper by paper. Read top to bottom."""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import UsageError
from core.names import not_known
from reports.exhibits.exhibit import Exhibit
from reports.exhibits.papers import flops, frontier, gru_mem, longbench, memagent, ruler, training

PAPERS = (memagent, flops, longbench, gru_mem, training, ruler, frontier)

EXHIBITS: Mapping[str, Exhibit] = {
    exhibit.name: exhibit for paper in PAPERS for exhibit in paper.EXHIBITS
}


def find_exhibit(name: str) -> Exhibit:
    """The exhibit of that name.

    Raises:
        UsageError: there is none; the text has the near misses.
    """
    if name not in EXHIBITS:
        raise UsageError(f"exhibit {not_known(name, EXHIBITS)}")
    return EXHIBITS[name]
