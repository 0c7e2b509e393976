"""Simulations whose head starts as that of the network and whose features start smaller, on texts of four kinds.

A simulation at the networks' own start is near their tokens and further from their contexts; one whose weights all
start at 0.3 of it is the other way round. A network moves its contexts through several layers, so that they leave their
random start sooner than the head does. In a simulation with a last norm, a smaller start of the features alone does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from tokengeom.extending import Figure, HeatmapPanel
from tokengeom_studies.base import Findings, Recipe, table_of
from tokengeom_studies.common.explained_cells import MAIN, NEAR, ExplainedCells, simulated, started
from tokengeom_studies.common.held_out_text import HELD_OUT, ITEMS, ONE, SEVERAL, TOKENS
from tokengeom_studies.common.measured import MOST, Hypothesis, Row, checks_of, share_of, text_table
from tokengeom_studies.explained_share import ExplainedShare

OWN, SMALL, BOTH, OTHER = (1.0, 1.0), (0.3, 0.3), (1.0, 0.3), (0.3, 1.0)
"""Starts of head and features, as multiples of the networks' own."""
TOKENS_NEAR = 0.05
"""Loss of corrected agreement of tokens that is accepted."""
CONTEXTS = (SEVERAL, ONE, HELD_OUT)
_RULE = (
    f"A cell is a text, a network and a kind of context (with several next tokens, with one, held out). It holds in at "
    f"least {MOST:.0%} of the cells: yes; in at most {1 - MOST:.0%}: no."
)


class SeparateStarts(ExplainedShare):
    """Corrected agreement of simulations whose head and features start at different scales."""

    question = "Does a simulation with the network's own head and smaller features have both contexts and tokens?"
    small: ClassVar[Recipe] = {
        **ExplainedShare.small,
        **{"networks": ["mlp"], "ties": [MAIN], "certified": [], "untied": False},
        "starts": [OWN[0], SMALL[0], list(BOTH), list(OTHER)],
    }
    paper: ClassVar[Recipe] = {
        **small,
        **{"text": "texts/starts_moby.npz", "networks": ["mlp", "transformer", "lstm"], "dim": 96},
        **{"replicates": 5, "seeds": 5, "learning_rate": 1e-3, "seconds": 1_800, "device": "cuda"},
    }
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "contexts": Hypothesis(
            "With the head at the network's own start and features at 0.3 of it, contexts agree better than with both "
            "at the network's own.",
            _RULE,
        ),
        "tokens": Hypothesis(
            f"Its tokens agree as well as with both at the network's own, within {TOKENS_NEAR}.",
            "The same rule, over texts and networks.",
        ),
        "small": Hypothesis(
            f"Its contexts agree at least as well as with both at 0.3, within {NEAR}.", "The same rule as for contexts."
        ),
    }

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """The cells in which each statement holds, and corrected agreement by start."""
        judged = ExplainedCells(rows)

        def ahead(kinds: Sequence[str], of: tuple[float, float], by: float) -> Iterable[bool]:
            for run in judged.runs:
                for kind in kinds:
                    own, other = (judged.corrected(run, _named(start), kind).mean for start in (BOTH, of))
                    if np.isfinite(own) and np.isfinite(other):
                        yield own > other + by

        answers = {
            "contexts": share_of(ahead(CONTEXTS, OWN, 0.0)),
            "tokens": share_of(ahead([TOKENS], OWN, -TOKENS_NEAR)),
            "small": share_of(ahead(CONTEXTS, SMALL, -NEAR)),
        }
        cells = [
            {
                **{name: run[name] for name in ("text", "network")},
                **{"head": start[0], "features": start[1]},
                **{kind: str(judged.corrected(run, _named(start), kind)) for kind in ITEMS},
            }
            for run in judged.runs
            for start in (OWN, SMALL, BOTH, OTHER)
        ]
        means = {start: judged.over_texts([_named(start)]) for start in (OWN, SMALL, BOTH, OTHER)}
        tables = {
            "hypotheses": self.answers(answers),
            "starts": table_of([{"head": start[0], "features": start[1], **means[start]} for start in means]),
            "cells": table_of(cells),
            "reproducible": judged.reproducible(),
            "texts": text_table(judged.rows),
        }

        def numbers(start: tuple[float, float]) -> str:
            return " / ".join(f"{means[start][kind]:.2f}" if np.isfinite(means[start][kind]) else "-" for kind in ITEMS)

        sentence = (
            "Corrected agreement of a simulation with the network's own head and features at 0.3 of their start, mean "
            f"over texts (several / one / held out / tokens): {numbers(BOTH)}; with both at the network's own "
            f"{numbers(OWN)}; with both at 0.3 {numbers(SMALL)}."
        )
        panel = HeatmapPanel(
            "Simulations", np.array([[means[start][kind] for kind in ITEMS] for start in means]), "kind of item",
            "start of head, features", list(ITEMS), [f"{head:g}, {features:g}" for head, features in means],
            [], [], 0.0, 1.0, "corrected agreement",
        )  # fmt: skip
        caption = (
            "Corrected agreement of simulations with networks, mean over texts, by the start of head and features as "
            "multiples of the networks' own. 1 is all that is reproducible."
        )
        figure = Figure("starts", "Which start suits contexts and tokens", caption, [panel])
        return self.findings(recipe, sentence, checks_of(judged.rows), [figure], tables)


def _named(start: tuple[float, float]) -> str:
    return simulated(MAIN) + started(*start)
