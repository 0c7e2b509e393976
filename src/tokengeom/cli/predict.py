"""``tokengeom predict``: the limit of training, predicted from statistics, with a certificate."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokengeom.cli.app import EstimateOnly, app, guarded
from tokengeom.cli.options import keywords
from tokengeom.cli.output import print_estimate, print_summary, progress_shown
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.core.progress import is_main_process
from tokengeom.theory.predict import PredictSettings

if TYPE_CHECKING:
    from tokengeom.results.contract import AbstractResult


@app.command("predict")
@guarded
def predict_command(
    statistics: Annotated[Path, typer.Argument(metavar="STATS", help="Folder that `tokengeom count --out` wrote.")],
    *,
    embeddings: Annotated[
        Path | None,
        typer.Option(
            help="Embeddings H (d x m) of the linear model, in .safetensors (tensor H) or .npy.", show_default=False
        ),
    ] = None,
    loss_gap: Annotated[
        float | None,
        typer.Option(
            help="Predict at this loss above the entropy floor, in nats, instead of in the limit.", show_default=False
        ),
    ] = None,
    ties: Annotated[
        str | None,
        typer.Option(
            help="Features by which contexts are tied: a sum of positions, pairs, suffixes and self, such as "
            "positions+suffixes+self, or kernel, those of an MLP at its start. "
            "The prediction then has a place for contexts that the text does not have.",
            show_default=False,
        ),
    ] = None,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="Predict the proxy S~ only, by a sparse SVD, for corpora of any size.")
    ] = False,
    components: Annotated[
        int | None, typer.Option(help="Number of singular vectors of the proxy.", show_default=False)
    ] = None,
    settings: PredictSettings,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to save the prediction in.")] = None,
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

    began = time.monotonic()
    if [proxy, embeddings is not None, loss_gap is not None].count(True) > 1:
        raise InputError("--proxy, --embeddings and --loss-gap are mutually exclusive: give only one of them.")
    if ties is not None and (proxy or embeddings is not None):
        raise InputError("--ties are for learned features: leave --proxy and --embeddings out.")
    if components is not None and not proxy:
        raise InputError("--components is the number of singular vectors of the proxy: use it with --proxy.")
    if estimate:
        if proxy or embeddings is not None:
            raise InputError("--estimate is for learned features: leave --proxy and --embeddings out.")
        print_estimate(estimate_prediction(statistics, loss_gap=loss_gap, ties=ties, **keywords(settings)))
        return
    limit = FeaturePrediction if embeddings is None else LinearPrediction
    kind: type[AbstractResult] = ProxyPrediction if proxy else limit if loss_gap is None else LossPrediction
    if ties is not None:
        kind = TiedPrediction
    if out is not None:
        kind.require_target(out)
    with progress_shown() as progress:
        prediction: AbstractResult
        if ties is not None:
            prediction = predict(statistics, loss_gap=loss_gap, ties=ties, progress=progress, **keywords(settings))
        elif loss_gap is not None:
            prediction = predict(statistics, loss_gap=loss_gap, progress=progress, **keywords(settings))
        elif proxy:
            prediction = predict_proxy(statistics, **({} if components is None else {"components": components}))
        elif embeddings is not None:
            H = load_embeddings(embeddings)
            prediction = predict(statistics, embeddings=H, progress=progress, **keywords(settings))
        else:
            prediction = predict(statistics, progress=progress, **keywords(settings))
        if out is not None and is_main_process():
            prediction.save(out)
    print_summary(prediction, began=began, out=out)


def load_embeddings(path: Path) -> Float:
    """H from a ``.npy`` file, or from the array ``H`` (or the only one) of a ``.safetensors`` or ``.npz`` file."""
    from tokengeom.models.saved_arrays import read_file

    arrays = read_file(path)
    if "H" not in arrays and len(arrays) != 1:
        raise InputError(f"{path} must hold a tensor called H, or a single one; it holds: {', '.join(arrays)}.")
    return arrays.get("H", next(iter(arrays.values())))
