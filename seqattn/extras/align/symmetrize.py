"""Symmetrization of the alignments of two directions (Och & Ney 2003; Koehn et al. 2005)."""

from collections.abc import Set
from typing import Literal

from seqattn.data.word_links import Link

Symmetrization = Literal["intersection", "union", "grow_diag_final_and"]
Links = Set[Link]
_AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrized(forward: Links, backward: Links, how: Symmetrization) -> Links:
    """Return one alignment of two; both have links of a source and a target word.

    Grow-diag-final-and starts with the links of both, adds links of either that touch one and have
    an unaligned word, and last those whose words are both unaligned.
    """
    if how == "intersection":
        return forward & backward
    if how == "union":
        return forward | backward
    links, either = set(forward & backward), forward | backward
    sources, targets = ({link[side] for link in links} for side in (0, 1))

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])

    grown = True
    while grown:
        grown = False
        for source, target in sorted(links):
            for down, right in _AROUND:
                link = source + down, target + right
                is_new = link[0] not in sources or link[1] not in targets
                if is_new and link in either and link not in links:
                    add(link)
                    grown = True
    for direction in (forward, backward):
        for link in sorted(direction - links):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return links
