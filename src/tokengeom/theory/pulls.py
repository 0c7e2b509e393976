"""What pulls a context or a token where it lies: optimality conditions of predictions, read as sums of vectors.

``h_j = sum_z X_zj w_z``,   ``w_z = sum_j Y_zj h_j``

where

==================  ================================================  ==============================================
prediction          ``X_zj``                                          ``Y_zj``
==================  ================================================  ==============================================
in the limit        ``G_zj``, the dual of NTP-SVM*                    the same
at a loss, nuclear  ``G_zj = (p_zj - R_zj) pi_j / lambda``            the same
at a loss, gamma_2  ``G_zj / (s c_j^2)``                              ``s G_zj / r_z^2``
with ties, nuclear  ``(G Phi^T Phi)_zj``                              ``G_zj``
with ties, gamma_2  ``(G Phi^T diag(1/c^2) Phi)_zj / s``             ``s G_zj / r_z^2``
==================  ================================================  ==============================================

``G``      V x m: <= 0 off support, of either sign on it; columns sum to 0, spectral norm at most 1
``R``      the dual's probabilities of the next token, which are the softmax of the logits at the optimum
``r, c``   weights of tokens and contexts in ``gamma_2(L) = max_{r, c} ||diag(r) L diag(c)||_*``; with ties of features
``s``      ``max_z ||w_z|| / max_j ||h_j||``; with ties the lengths of the features' vectors a_f

A context is pulled towards tokens with ``X_zj > 0`` and away from those with ``X_zj < 0``; at a loss, the former are
tokens to which the prediction gives less than the text does. Since ``<h_j, h_k> = sum_z X_zj <w_z, h_k>``, each token
has a contribution to each cosine.

**Why.** Let ``L = U Sigma Q^T`` be logits and G a dual with ``||G||_2 <= 1``, and ``delta = ||L||_* - <L, G>``. With
the columns u_i of U and v_i of Q, ``delta = sum_i sigma_i (1 - u_i^T G v_i)`` and ``||G^T u_i - v_i||^2 <= 2 (1 - u_i^T
G v_i)``, so the residuals of the balanced factors satisfy

``sum_j ||h_j - sum_z G_zj w_z||^2 <= 2 delta``,   ``sum_z ||w_z - sum_j G_zj h_j||^2 <= 2 delta``

and delta is at most the gap that the certificate proves. For gamma_2 let ``W' = diag(r) W`` and ``H' = H diag(c)``,
scaled such that both norms are at most ``sqrt gamma``, ``gamma = max ||w|| max ||h||``, and ``G' = diag(1/r) G
diag(1/c)`` with ``||G'||_2 <= 1``. Then ``||G'^T W' - H'^T||^2 <= 2 (gamma - <W' H', G'>)``, so

``sum_j c_j^2 ||h_j - sum_z X_zj w_z||^2 <= 2 delta``,   ``sum_z r_z^2 ||w_z - sum_j Y_zj h_j||^2 <= 2 delta``   (s = 1)

An item of weight 0 has no condition: its vector may be any that is not too long. Duals need not be unique: where
others exist, so do other sums for the same cosines.

Merged tokens and contexts have equal vectors. Sums run over all of them: each token of a merged row, and each context
of a merged column, has its own part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokengeom.ask.explain import Pulls as Pulls
from tokengeom.core.numerics import Float, Int, log_sum_exp
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.regularised_logits import Merging
from tokengeom.problems.tied_logits import DistinctFeatures

if TYPE_CHECKING:
    from tokengeom.ask.named_vectors import Items
    from tokengeom.theory.at_loss import LossPrediction
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.tied import TiedPrediction


def pulls_in_limit(prediction: FeaturePrediction) -> Pulls:
    """What pulls items in the limit: the dual of NTP-SVM*."""
    red, proof = prediction.reduction, prediction.certificate
    G, _ = NuclearSVM(red).repair_dual(prediction.dual_merged)
    merged = G / np.sqrt(red.a)[:, None] / np.sqrt(red.n) / (1.0 + proof.dual_residual)
    groups: dict[Items, Int] = {"tokens": red.row_of, "contexts": red.column_of}
    delta = max(proof.value - proof.bound, 0.0)
    return Pulls(prediction, red.row_of, red.column_of, merged, merged, groups, delta)


def pulls_at_loss(prediction: LossPrediction) -> Pulls:
    """What pulls items at a loss: the error of the predicted probabilities."""
    merging, scale = prediction.merging, prediction.lam * (1.0 + prediction.certificate.dual_residual)
    share = prediction.pi / prediction.pi_merged[merging.column_of]
    # Per token and merged column: all contexts of the column together.
    D = -prediction.change_merged * prediction.pi_merged / scale
    on_contexts, on_tokens, weights = D / merging.n, D, None
    if prediction.weights is not None:
        p, q = prediction.weights
        s = _ratio(prediction.W, prediction.H)
        on_contexts, on_tokens = D / (s * q), s * D * (merging.a / p)[:, None]
        weights = (p / merging.a)[merging.row_of], (q / merging.n)[merging.column_of]
    groups: dict[Items, Int] = {"tokens": merging.row_of, "contexts": prediction.context_groups}
    of, delta = (merging.row_of, merging.column_of), max(prediction.norm_value - prediction.lower_bound, 0.0)
    return Pulls(prediction, *of, on_contexts, on_tokens, groups, delta, share, weights)


def pulls_with_ties(prediction: TiedPrediction) -> Pulls:
    """What pulls items at a loss, where contexts that share features share vectors."""
    (V, m), Phi, weights = prediction.P.shape, prediction.features.matrix, None
    tokens, contexts = np.arange(V), np.arange(m)
    error = prediction.P.toarray() - np.exp(prediction.L - log_sum_exp(prediction.L))
    G = error * (prediction.pi / prediction.lam)
    groups: dict[Items, Int] = {"tokens": tokens, "contexts": contexts}
    delta = max(prediction.norm_value - prediction.lower_bound, 0.0)
    of_features, on_tokens = G @ Phi.T, G
    if prediction.weights is not None:
        (p, q), merging = prediction.weights, Merging.of_tokens(prediction.P)
        p, s = (p / merging.a)[merging.row_of], _ratio(prediction.W, prediction.A)
        distinct = DistinctFeatures.of(Phi, largest_rows=True)
        Phi = distinct.matrix
        of_features, on_tokens = (G @ Phi.T) / (s * q), s * G / p[:, None]
        weights = p, np.minimum.reduceat(np.append(q[Phi.indices], 1.0), Phi.indptr[:-1])
    return Pulls(prediction, tokens, contexts, of_features @ Phi, on_tokens, groups, delta, weights=weights)


def _ratio(W: Float, H: Float) -> float:
    """``max_z ||w_z|| / max_j ||h_j||``; 1 where both are 0."""
    row, column = (float(np.sqrt((x**2).sum(axis=axis).max(initial=0.0))) for x, axis in ((W, 1), (H, 0)))
    return row / column if row > 0 and column > 0 else 1.0
