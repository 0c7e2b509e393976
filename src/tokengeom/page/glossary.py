"""Terms and symbols in plain words, and how to cite."""

from __future__ import annotations

GLOSSARY = (
    ("token", "V", "a piece of text that the tokenizer knows: a word, a part of a word, a character or a byte"),
    ("context", "m", "the tokens before the one to be predicted; equal contexts are counted as one"),
    ("window", "n", "one place in the text: a context and the token that follows it there"),
    ("support", "S", "the tokens that follow a context somewhere in the text, as it was cut; all others never do"),
    ("support group", "g", "all contexts with the same support"),
    ("probability", "P", "how often a token follows a context, as a share of the context's windows"),
    ("entropy floor", "H", "the average surprise of the next token, in nats: the lowest loss that any model can have"),
    ("loss gap", "CE - H", "how far a model's loss is above the floor"),
    ("embedding", "W, H", "the vector of d numbers that a model gives to a token (W) or to a context (H)"),
    ("logit", "L", "the score W H that a model gives a token after a context; softmax turns scores into probabilities"),
    ("separable", "", "possible next tokens can be given higher logits than impossible ones in every context at once"),
    ("compatible", "", "every context can be given its own frequencies inside its support at once"),
    ("margin", "", "by how much the lowest possible token's logit exceeds the highest impossible one's"),
    ("finite part", "L_in", "what logits converge to inside the supports: centred log-probabilities"),
    ("direction", "L_mm", "along which logits grow without end: separates with margin 1 at the smallest nuclear norm"),
    ("nuclear norm", "||L||_*", "the sum of a matrix's singular values; small for matrices of few, weak patterns"),
    ("proxy", "S~", "the matrix of supports with its columns centred: a simple stand-in for L_mm"),
    ("relative gap", "", "how far a solution can at most be from the best one; computed from a dual bound, a proof"),
    ("rank", "r", "how many independent directions a matrix has; the dimensions that its geometry needs"),
    ("cosine", "", "agreement of two directions: 1 the same, 0 at a right angle, -1 opposite"),
    (
        "structural similarity",
        "SIM",
        "correlation of two matrices of cosines, diagonals included: 1 is equal geometry",
    ),
    ("collapse", "", "contexts with the same support get the same direction; measured as scatter inside over between"),
    ("interval", "", "where the number lies in 95 of 100 redraws of the contexts (or tokens) that it averages over"),
    ("chance", "", "what one in twenty random shufflings of the run's contexts (or tokens) reaches or betters"),
    ("concept", "u, v, s", "a singular vector pair: a contrast between tokens (u) and contexts (v), of strength s"),
    ("unconstrained features", "UFM", "a model in which every context has its own free embedding"),
)
"""Term, symbol, meaning."""

BIBTEX = """\
@software{tokengeom,
  title  = {tokengeom: the geometry of next-token prediction, predicted and measured},
  author = {{The tokengeom authors}}
}
@inproceedings{thrampoulidis2024,
  title     = {Implicit Optimization Bias of Next-Token Prediction in Linear Models},
  author    = {Thrampoulidis, Christos},
  booktitle = {NeurIPS},
  year      = {2024},
  note      = {arXiv:2402.18551}
}
@inproceedings{zhao2024,
  title     = {Implicit Geometry of Next-token Prediction: From Language Sparsity Patterns to Model Representations},
  author    = {Zhao, Yize and Behnia, Tina and Vakilian, Vala and Thrampoulidis, Christos},
  booktitle = {COLM},
  year      = {2024},
  note      = {arXiv:2408.15417}
}
@article{zhao2025,
  title   = {On the Geometry of Semantics in Next-token Prediction},
  author  = {Zhao, Yize and Thrampoulidis, Christos},
  journal = {arXiv:2505.08348},
  year    = {2025}
}"""
