"""``tokengeom predict``: the limit of training, predicted from statistics, with a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tokengeom.cli.app import EstimateOnly, app, guarded
from tokengeom.cli.options import Out, Statistics, keywords, optional
from tokengeom.cli.output import make_and_print, print_estimate
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.core.progress import AbstractProgress
from tokengeom.results.contract import AbstractResult
from tokengeom.theory.predict import PredictSettings


@app.command("predict")
@guarded
def predict_command(
    statistics: Statistics,
    *,
    embeddings: Annotated[
        Path | None, optional("Embeddings H (d x m) of the linear model, in .safetensors (tensor H) or .npy.")
    ] = None,
    loss_gap: Annotated[
        float | None, optional("Predict at this loss above the entropy floor, in nats, instead of in the limit.")
    ] = None,
    ties: Annotated[
        str | None,
        optional(
            "Features by which contexts are tied: a sum of positions, pairs, suffixes and self, such as "
            "positions+suffixes+self, or kernel, those of an MLP at its start. "
            "The prediction then has a place for contexts that the text does not have."
        ),
    ] = None,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="Predict the proxy S~ only, by a sparse SVD, for corpora of any size.")
    ] = False,
    components: Annotated[int | None, optional("Number of singular vectors of the proxy.")] = None,
    settings: PredictSettings,
    out: Out = None,
    estimate: EstimateOnly = False,
) -> None:
    """Predict the geometry that training tends to, with a certificate that the prediction solves its problem.

    Learned features can be solved for by several processes together, each with a part of the contexts, through
    PyTorch's launcher: `torchrun --nproc-per-node 4 -m tokengeom predict ...`.

    For example:

    * `tokengeom predict stats --out prediction`
    * `tokengeom predict stats --loss-gap 0.01 --out at-loss`
    * `tokengeom predict stats --loss-gap 0.01 --norm gamma2 --out at-loss`
    * `tokengeom predict stats --loss-gap 0.5 --ties positions+suffixes+self --out tied`
    * `tokengeom predict stats --estimate`
    * `tokengeom predict stats --embeddings H.safetensors --out linear`
    * `tokengeom predict big-stats --proxy --components 64 --out proxy`
    """
    from tokengeom.theory.at_loss import LossPrediction
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.linear import LinearPrediction
    from tokengeom.theory.predict import estimate_prediction, predict
    from tokengeom.theory.proxy import ProxyPrediction, predict_proxy
    from tokengeom.theory.tied import TiedPrediction

    if [proxy, embeddings is not None, loss_gap is not None].count(True) > 1:
        raise InputError("--proxy, --embeddings and --loss-gap are mutually exclusive: give only one of them.")
    if ties is not None and (proxy or embeddings is not None):
        raise InputError("--ties are for learned features: leave --proxy and --embeddings out.")
    if components is not None and not proxy:
        raise InputError("--components is the number of singular vectors of the proxy: use it with --proxy.")
    how: dict[str, Any] = {"loss_gap": loss_gap, "ties": ties, **keywords(settings)}
    if estimate:
        if proxy or embeddings is not None:
            raise InputError("--estimate is for learned features: leave --proxy and --embeddings out.")
        print_estimate(estimate_prediction(statistics, **how))
        return
    limit = FeaturePrediction if embeddings is None else LinearPrediction
    kind: type[AbstractResult] = ProxyPrediction if proxy else limit if loss_gap is None else LossPrediction
    if ties is not None:
        kind = TiedPrediction

    def predicted(progress: AbstractProgress) -> AbstractResult:
        if proxy:
            return predict_proxy(statistics, **({} if components is None else {"components": components}))
        H = None if embeddings is None else load_embeddings(embeddings)
        prediction: AbstractResult = predict(statistics, embeddings=H, progress=progress, **how)
        return prediction

    make_and_print(kind, predicted, out)


def load_embeddings(path: Path) -> Float:
    """H from a ``.npy`` file, or from the array ``H`` (or the only one) of a ``.safetensors`` or ``.npz`` file."""
    from tokengeom.models.saved_arrays import read_file

    arrays = read_file(path)
    if "H" not in arrays and len(arrays) != 1:
        raise InputError(f"{path} must hold a tensor called H, or a single one; it holds: {', '.join(arrays)}.")
    return arrays.get("H", next(iter(arrays.values())))
