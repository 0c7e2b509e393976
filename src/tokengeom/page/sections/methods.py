"""Methods: how each number was computed, settings, versions, seeds, hashes, how to verify and to cite, a glossary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokengeom.comparison.verdict import AGREES, IN_PART
from tokengeom.core.citation import cite
from tokengeom.page.contents import Contents
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.settings import MODEL_NAMES

TITLES = {
    "versions": "Versions",
    "machine": "Machine",
    "seeds": "Seeds",
    "settings": "Settings",
    "hashes": "Hashes (SHA-256): text, models, stages",
    "seconds": "Seconds per stage",
}
GLOSSARY = (
    ("token", "V", "a unit of text: a word, a part of a word, a character or a byte; V is their number"),
    ("context", "m", "the tokens before the one to be predicted; m is the number of distinct contexts"),
    ("window", "n", "one position in the text: a context and the token that follows it there"),
    (
        "support",
        "S",
        "the tokens that follow a context somewhere in the text, after the cuts; no other token ever does",
    ),
    ("support group", "g", "all contexts with the same support"),
    ("probability", "P", "how often a token follows a context, as a share of the context's windows"),
    ("entropy floor", "H", "the average surprise of the next token, in nats: the lowest loss that any model can have"),
    ("loss gap", "CE - H", "how far a model's loss is above the entropy floor"),
    ("embedding", "W, H", "the vector of d numbers that a model gives to a token (W) or to a context (H)"),
    ("logit", "L", "the score W H that a model gives a token after a context; softmax turns scores into probabilities"),
    ("separable", "", "possible next tokens can have higher logits than impossible ones in every context at once"),
    ("compatible", "", "every context can have its own frequencies inside its support at once"),
    ("margin", "", "by how much the lowest logit of a possible token exceeds the highest one of an impossible token"),
    ("finite part", "L_in", "what logits converge to inside the supports: centred log-probabilities"),
    (
        "direction",
        "L_mm",
        "along which logits grow without bound: separates with margin 1 at the smallest nuclear norm",
    ),
    (
        "nuclear norm",
        "||L||_*",
        "the sum of a matrix's singular values; small for matrices with few or weak singular directions",
    ),
    ("proxy", "S~", "the matrix of supports with its columns centred: a simple approximation of L_mm"),
    (
        "gamma_2 norm",
        "",
        "the smallest product of the largest row of W and the largest column of H over all factors of the logits",
    ),
    ("relative gap", "", "how far a solution can be from the optimum at most, from a dual bound"),
    ("rank", "r", "the number of independent directions of a matrix: the dimensions that its geometry needs"),
    ("cosine", "", "similarity of two directions: 1 equal, 0 orthogonal, -1 opposite"),
    (
        "agreement",
        "",
        "correlation of measured with predicted cosines, over pairs of contexts with different supports or of "
        "different tokens: 1 is equal geometry",
    ),
    (
        "structural similarity",
        "SIM",
        "the papers' measure: correlation of two matrices of cosines, diagonals included",
    ),
    (
        "collapse",
        "",
        "contexts with the same support get the same direction; measured as the ratio of the scatter of context "
        "directions within support groups to that between them",
    ),
    ("interval", "", "95% interval of a number, from leaving out support groups, or tokens, in turn"),
    (
        "floor, chance",
        "",
        "what a number is without any agreement: for permuted support groups, for Gaussian embeddings, before training",
    ),
    ("ceiling", "", "the number between two trainings of the same model with different seeds"),
    (
        "efficiency",
        "",
        "smallest norm of logits with the run's loss over the norm of the run's logits: 1 is the best possible",
    ),
    (
        "split",
        "",
        "how W and H share the logits: agreement with their balanced factors; the exponent is 0.5 if both are equal",
    ),
    ("concept", "u, v, s", "a singular vector pair: a contrast between tokens (u) and contexts (v), of strength s"),
    ("unconstrained features", "UFM", "a model in which every context has its own free embedding"),
)
"""Term, symbol, meaning."""


def methods(page: Page) -> Section:
    """How the numbers were computed, from what, and how to check and cite them."""
    contents = page.contents
    provenance = {**contents.provenance, "settings": _other_settings(contents)}
    ordered = [key for key in TITLES if provenance.get(key)] + [key for key in provenance if key not in TITLES]
    runs = {name: run.settings for name, run in contents.trained.items()}
    view = {
        "tables": [{"title": TITLES.get(key, key), "rows": flattened(provenance[key])} for key in ordered],
        "runs": [{"title": f"Training settings: {name}", "rows": flattened(one)} for name, one in runs.items()],
        "counted": contents.stats.has_counts,
        "of_model": bool(contents.models),
        "agrees": f"{AGREES:.0%}",
        "agrees_value": AGREES,
        "in_part": f"{IN_PART:.0%}",
        "bibtex": cite(),
        "glossary": GLOSSARY,
    }
    return Section("methods", "Methods and sources", view)


def _other_settings(contents: Contents) -> dict[str, object]:
    """Settings apart from those of the runs, which have tables of their own."""
    settings = dict(contents.provenance.get("settings", {}))
    training = settings.pop("training", {})
    not_run = {name: one for name, one in training.items() if MODEL_NAMES.get(name, name) not in contents.runs}
    return {**settings, **({"training": not_run} if not_run else {})}


def flattened(value: object, path: str = "") -> list[tuple[str, str]]:
    """Nested plain data as rows of a dotted name and a value."""
    if isinstance(value, Mapping):
        return [row for key, item in value.items() for row in flattened(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(path, ", ".join(_text(item) for item in value))]
    return [(path, _text(value))]


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)
