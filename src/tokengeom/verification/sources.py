"""Checks of what others are made from: statistics, counted pairs and runs, computed again from their own arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokengeom.core.errors import InputError, MissingExtraError, StatisticsError, TokengeomError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays
from tokengeom.corpus.tokenizers import AbstractTokenizer
from tokengeom.models.factored import FACTORED
from tokengeom.models.networks.base import architecture_named, import_torch
from tokengeom.results.contract import SAME, SNAPSHOTS, NearbyResults, read_saved
from tokengeom.results.convert import to_plain
from tokengeom.results.manifests import MANIFEST, read_json
from tokengeom.statistics.cuts import WINDOWS, Effect, Totals
from tokengeom.statistics.engines import open_engine, temporary_folder
from tokengeom.statistics.next_token import OTHER, SHARED, NextTokenStatistics
from tokengeom.statistics.ordered_pairs import pair_rows, read_ordered_shards
from tokengeom.statistics.pairs import CountedPairs
from tokengeom.statistics.saved_statistics import in_order, rises
from tokengeom.statistics.sorting import PairRows
from tokengeom.statistics.windows import START
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run, Snapshot, fits_state, load_runs
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulation import Simulation
from tokengeom.training.train import build_network
from tokengeom.verification.verify import Checks, same, under, with_statistics


def check_statistics(stats: NextTokenStatistics, nearby: NearbyResults) -> Checks:
    """Whether everything that follows from counts, contexts and names is what the manifest states."""
    if stats.claimed is None:
        return {}
    names, again = "windows contexts vocabulary coverage left_out entropy_nats distinct_supports", stats.to_dict()
    equal = {
        f"computed again, it has the same {name}": same(stats.claimed.get(name), again[name], SAME)
        for name in f"{names} one_hot_share completeness tokenizer hash".split()
    }
    lead = not stats.has_counts or lead_to(stats.effects, stats.totals)
    return {"the cuts lead to these sizes": lead, **equal, **_check_text(stats)}


def _check_text(stats: NextTokenStatistics) -> Checks:
    """What can be known of the text, which is not kept."""
    if stats.windows is None:
        return {"that numbers and names are the ones given: they are kept nowhere else": None}
    unknown = "that contexts, counts and corpus are those of the text: the text is not kept with the statistics"
    if any(effect.cut == SHARED for effect in stats.effects):
        # The order of what two texts share is that of the first text, and names may be those of either.
        return {unknown: None}
    assert stats.contexts is not None
    return {
        "tokens have the names of their ids, in order": names_fit(
            stats.vocabulary, stats.tokenizer, stats.text_vocabulary
        ),
        "contexts are in the order of their ids": in_order(stats.contexts),
        **_check_padding(stats, bool((stats.contexts == START).any())),
        unknown: None,
    }


def _check_padding(stats: NextTokenStatistics, has_start: bool) -> Checks:
    """Whether contexts at the beginning of documents show what is said of padding, and what no cut can show."""
    assert stats.windows is not None
    said = "what the cuts are called, and whether documents begin with start markers where no context shows it: they "
    checks: Checks = {f"{said}are as recorded when it was made": None} if stats.effects else {}
    if has_start or not stats.effects:
        checks["documents begin with start markers where they are said to"] = stats.windows.pad == has_start
    return checks


def names_fit(names: Sequence[str], tokenizer: AbstractTokenizer | None, vocabulary: int) -> bool:
    """Whether names are those of tokens of a text, in the order of their ids; a cut may have left out some.

    ``vocabulary``
        Number of tokens that the text could have. The token that stands for merged ones comes after all others.
    """
    known: Iterable[str] = () if tokenizer is None else tokenizer.vocabulary()[:vocabulary]
    size = 0 if tokenizer is None else min(tokenizer.size, vocabulary)
    everything = iter(chain(known, (f"token {row}" for row in range(size, vocabulary)), [OTHER]))
    return all(name in everything for name in names)


def lead_to(effects: Sequence[Effect], end: Totals) -> bool:
    """Whether each cut starts from the sizes that the one before it left, and the last one leaves ``end``."""
    left, met = [effect.after for effect in effects], [*(effect.before for effect in effects[1:]), end]
    return not effects or same(to_plain(left), to_plain(met), SAME)


def check_pairs(pairs: CountedPairs, nearby: NearbyResults) -> Checks:
    """Whether pairs can be those of a text, and sizes and entropy floor are those that the manifest states."""
    claimed = pairs.known_totals
    if claimed is None:
        return {}
    are_possible, are_in_order = _check_parts(pairs)
    possible: Checks = {"every pair has ids in range and a count of at least 1": are_possible}
    possible |= {"the pairs are in order": are_in_order} if pairs.ordered else {}
    if not all(possible.values()):
        return possible
    try:
        with temporary_folder() as spill, open_engine(spill) as engine:
            computed = pairs.with_totals(engine).totals
        fits = _windows_fit(pairs)
    except InputError:
        return {**possible, "the pairs can be added up": False}
    return {
        **possible,
        "no context has more windows in its pairs than in the text": fits,
        "the sizes are the ones claimed": replace(computed, entropy=0.0) == replace(claimed, entropy=0.0),
        "the entropy floor is the one claimed": same(claimed.entropy, computed.entropy, SAME),
        "the cuts lead to these sizes": lead_to(pairs.effects, claimed),
        "what the cuts are called, and whether documents begin with start markers: they are as recorded when it was "
        "made": None,
        "that pairs and corpus are those of the text: the text is not kept with the pairs": None,
    }


def _check_parts(pairs: CountedPairs) -> tuple[bool, bool]:
    """Whether pairs, read one part at a time, are possible, and whether they are in order.

    Possible pairs have ids that a text can have, and a count of at least 1. Pairs in order rise by context and next
    token, so that none occurs twice.
    """
    are_possible, are_in_order, last = True, True, list[int]()
    try:
        for table in read_ordered_shards(pairs.paths, pairs.columns):
            if any(column.null_count for column in table.columns):
                return False, are_in_order
            part = pair_rows(table)
            if not part.size:
                continue
            are_possible &= _in_range(pairs, part)
            *sorted_by, _ = part.columns
            first = [int(column[0]) for column in sorted_by]
            are_in_order &= first > last and bool(rises(sorted_by).all())
            last = [int(column[-1]) for column in sorted_by]
    except StatisticsError:
        return False, False
    return are_possible, are_in_order


def _in_range(pairs: CountedPairs, part: PairRows) -> bool:
    """Whether contexts have fields that windows can have, next tokens are among the rows, and counts at least 1."""
    packing = pairs.packing
    limits = [packing.base ** len(span) for span in packing.spans]
    if not all(0 <= key.min() <= key.max() < limit for key, limit in zip(part.keys, limits, strict=True)):
        return False
    fields = packing.unpack([key[part.context_starts()] for key in part.keys])
    possible = int(fields.min()) >= pairs.windows.lowest_field and int(part.count.min()) >= 1
    return possible and bool(np.isin(part.next, pairs.rows).all())


def _windows_fit(pairs: CountedPairs) -> bool:
    """Whether contexts that lost windows to a cut have one number of windows in the text, and no fewer left."""
    with temporary_folder() as spill, open_engine(spill) as engine:
        table = pairs.table(engine)
        if WINDOWS not in table.columns:
            return True
        windows, left = table[WINDOWS], table["count"].sum()
        contexts = table.group_by(pairs.packing.columns).aggregate(low=windows.min(), high=windows.max(), left=left)
        wrong = contexts.filter((contexts.low != contexts.high) | (contexts.low < contexts.left))
        return int(engine.numbers(wrong.aggregate(contexts=wrong.count()))["contexts"]) == 0


NOT_CHECKED: Checks = {
    "that training with these settings gives W, H and the state: only training again would show it": None,
    "records before the last one, and seconds: only training again would show them": None,
    "the settings, except the dimension: only training again would show them": None,
    "numbers in the trajectory that compare with a prediction: the run does not record which prediction it was": None,
}
"""What the checks of a run leave out."""


def check_runs(folder: Path, nearby: NearbyResults) -> Checks:
    """What `check_run` checks, for the run in a folder or every replicate of a batched run, and what a snapshot is."""
    # Only a snapshot says at which step it was made, and only it has a state.
    is_snapshot = fnmatch(folder.name, SNAPSHOTS) or "step" in read_json(folder / MANIFEST)
    snapshot = read_saved(folder, Run.kind, Run.format_version, Snapshot.read) if is_snapshot else None
    runs = load_runs(folder) if snapshot is None else snapshot.runs
    checks: Checks = {}
    for r, run in enumerate(runs):
        checks |= under(f"replicate {r}", check_run(run, nearby)) if len(runs) > 1 else check_run(run, nearby)
    return checks if snapshot is None else checks | check_snapshot(snapshot, folder.name, nearby)


def check_snapshot(snapshot: Snapshot, name: str, nearby: NearbyResults) -> Checks:
    """Whether W and H of the runs, step and generators are those of the state that training continues from."""
    runs, batch = snapshot.runs, snapshot.runs[0].settings.get("batch")
    checks: Checks = {
        "the step is that of the folder's name": not fnmatch(name, SNAPSHOTS) or int(name[5:]) == snapshot.step,
        "there is one generator of windows per replicate, or none where all windows are used": (
            len(snapshot.generators) == (len(runs) if batch else 0) and all(map(_is_generator, snapshot.generators))
        ),
        "the optimizer's memory, the state of generators, and the hash of the labels: only training again would show "
        "them": None,
    }
    if any(run.diverged for run in runs):
        return checks
    said = "W and H are those of the state that training continues from"
    stats = nearby.find(NextTokenStatistics, hash=runs[0].statistics_hash)
    if runs[0].settings.get("model") not in FACTORED and stats is None:
        return {**checks, f"whether {said}: a network needs its statistics for it": None}
    try:
        again = _factors_of_state(snapshot, stats)
    except MissingExtraError as error:
        return {**checks, f"whether {said}: {error}": None}
    except (TokengeomError, KeyError, ValueError, TypeError, RuntimeError):
        return {**checks, said: False}
    return {**checks, said: all(fits_state(run, *factors) for run, factors in zip(runs, again, strict=True))}


def _is_generator(state: dict[str, Any]) -> bool:
    try:
        np.random.default_rng(0).bit_generator.state = state
    except (TypeError, ValueError, KeyError, OverflowError):
        return False
    return True


def _factors_of_state(snapshot: Snapshot, stats: NextTokenStatistics | None) -> list[tuple[Factors, Arrays]]:
    """W, H and further weights of every run of a snapshot, from the parameters in its state."""
    state, runs = snapshot.state, snapshot.runs
    if "K" in state:
        return [(Factors(state["W"].astype(np.float64), state["K"].astype(np.float64).T), {})]
    if "fixed" not in state:
        assert stats is not None, "asked for before"
        return [_network_of_state(state["theta"], runs[0], stats)]
    # Replicates side by side, padded to the largest dimension: W, then H transposed, trained or not.
    flat = np.hstack([state["theta"], state["fixed"]]).astype(np.float64)
    (V, m), d = (runs[0].W.shape[0], runs[0].H.shape[1]), max(run.W.shape[1] for run in runs)
    matrices = flat.reshape(len(runs), V + m, d)
    return [
        (Factors(x[:V, : run.W.shape[1]], x[V:, : run.W.shape[1]].T), {}) for run, x in zip(runs, matrices, strict=True)
    ]


def _network_of_state(theta: NDArray[Any], run: Run, stats: NextTokenStatistics) -> tuple[Factors, Arrays]:
    """W, H and kept weights of a network with these parameters, all in one vector."""
    torch = import_torch()
    own = architecture_named(str(run.settings.get("model"))).defaults
    known = {name: run.settings[name] for name in ("model", "dim", "tied", "seed", *own) if name in run.settings}
    network = build_network(stats, TrainingSettings(**known))
    parameters, vector = list(network.decoder.parameters()), torch.as_tensor(theta)
    if vector.shape != (sum(parameter.numel() for parameter in parameters),):
        raise ValueError("another number of parameters")
    network.decoder.to(dtype=vector.dtype)
    torch.nn.utils.vector_to_parameters(vector, network.decoder.parameters())
    return network.readout(), network.kept()


def check_run(run: Run, nearby: NearbyResults) -> Checks:
    """What W and H say of the last record, the start of the first one, and the statistics of the loss."""
    last = int(run.trajectory.last("step")) if len(run.trajectory) else -1
    is_finite = bool(np.isfinite(run.W).all() and np.isfinite(run.H).all())
    checks: Checks = {
        "W and H have the dimension in the settings": run.settings.get("dim") == run.W.shape[1],
        "W and H are finite, or the run diverged": run.diverged or is_finite,
        "the last record is at the last step of a finished run": (
            last == run.steps if run.status == "finished" else last <= run.steps
        ),
        "the status is one that a run has after so many steps, with such logits": _status_fits(run),
    }
    if last == run.steps and not run.diverged:
        checks["loss gap and norms are those of the last record"] = _is_record(run, -1, Factors(run.W, run.H))
    if (start := _recorded_start(run)) is not None:
        checks["the norms before the first step are those of the first record"] = _is_record(run, 0, start)
    what, sizes = "loss, margin and entropy, computed again", (run.W.shape[0], run.H.shape[1])
    if run.statistics_hash is None:
        return checks | {f"{what}: the labels of the training are not saved": None} | NOT_CHECKED
    of_loss = with_statistics(run.statistics_hash, nearby, what, lambda stats: _check_loss(run, stats, last), sizes)
    return checks | of_loss | NOT_CHECKED


def _status_fits(run: Run) -> bool:
    """Whether a finished run made all its steps, an interrupted one fewer, and only a diverged one has no logits."""
    steps = int(run.settings.get("steps", run.steps))
    if run.diverged:
        with np.errstate(all="ignore"):
            return not np.isfinite(run.logits).all()
    # A simulation ends a run at a loss instead of a step; such a run is not saved.
    made = {"finished": run.steps == steps, "interrupted": run.steps < steps, "running": run.steps <= steps}
    return made.get(run.status, False) or "steps" not in run.settings


def _recorded_start(run: Run) -> Factors | None:
    """W and H before the first step, where the first record measures them."""
    is_recorded = len(run.trajectory) > 0 and run.trajectory.steps[0] == 0
    return run.start if is_recorded else None


def _is_record(run: Run, place: int, factors: Factors) -> bool:
    """Whether a record has the norms of these factors, and the last one the loss gap of the run."""
    measured = {
        "norm_W": float(np.linalg.norm(factors.W)),
        "norm_H": float(np.linalg.norm(factors.H)),
        "norm_logits": float(np.linalg.norm(factors.logits)),
    } | ({"loss_gap": run.loss_gap} if place == -1 else {})
    recorded = {name: float(run.trajectory[name][place]) for name in measured if name in run.trajectory.names}
    return same(recorded, {name: measured[name] for name in recorded}, SAME)


def _check_loss(run: Run, stats: NextTokenStatistics, last: int) -> Checks:
    """Whether losses, entropy and margins are those of the statistics beside the run."""
    checks: Checks = {"the entropy floor is that of the statistics": same(run.entropy, stats.entropy, SAME)}
    if run.diverged:
        return checks
    labels, L = SoftLabels.from_statistics(stats), run.logits
    checks["the loss gap is that of W and H"] = same_loss(run.loss_gap, labels.loss_gap(L))
    if last == run.steps and "margin" in run.trajectory.names:
        recorded, margin = run.trajectory.last("margin"), float(np.min(labels.margins(L)))
        checks["the margin of the last record is that of W and H"] = same(recorded, margin, SAME)
    if (start := _recorded_start(run)) is not None:
        claimed, first = float(run.trajectory["loss_gap"][0]), labels.loss_gap(start.logits)
        checks["the loss gap of the first record is that of the start"] = same_loss(claimed, first)
    return checks


def same_loss(claimed: float, again: float) -> bool:
    """Whether two loss gaps agree, as a share of themselves; below 1e-15 nats, rounding decides."""
    return bool(abs(claimed - again) <= 1e-6 * max(abs(claimed), abs(again)) + 1e-15)


def check_simulation(simulation: Simulation, nearby: NearbyResults) -> Checks:
    """Loss gaps and likeness of the replicates, from their weights and the statistics beside them."""
    assert simulation.statistics_hash is not None, "simulate always knows it"
    what, sizes = "loss gaps, and how alike replicates are", (simulation.heads.shape[0], len(simulation.contexts))
    compare = partial(_check_replicates, simulation)
    return {
        **with_statistics(simulation.statistics_hash, nearby, what, compare, sizes),
        "that replicates were trained as the settings say, their steps, and seconds: only training shows it": None,
    }


def _check_replicates(simulation: Simulation, stats: NextTokenStatistics) -> Checks:
    own: ArrayLike = () if stats.contexts is None else stats.contexts
    if not np.array_equal(simulation.contexts, own):
        return {"the contexts are those of the statistics": False}
    again = simulation.measured(stats)
    claimed = {name: to_plain(getattr(simulation, name)) for name in ("reliability", "standard_error")}
    return {
        "the contexts are those of the statistics": True,
        "the loss gaps are those of the weights": all(map(same_loss, simulation.loss_gaps, again["loss_gaps"])),
        "replicates are as alike as claimed": same(claimed, to_plain({name: again[name] for name in claimed})),
    }
