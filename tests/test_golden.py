"""What version 0.1.0 saved, printed and offered is read, printed and offered in the same way.

`tests/golden/make.py` made the files and says what they are. Version 0.2.0 measures agreement on another scale: what is
reproducible in place of a ceiling, floors of tokens within strata, pairs of supports, and free parameters that are
chosen on other items. Therefore

- the outputs of `compare`, `rivals`, `report` and `explain` (`golden.make.MADE_AGAIN`) were made again in 0.2.0;
- comparisons of 0.1.0 that are saved again have more entries, and each that they had before has the same value;
- they, and tables of explanations, are not made again by verifying, which says so;
- a run is compared with the prediction for its own text: `compare` has no `shared_tokens`;
- explanations are not evaluated on held-out contexts any more: `rivals` has no setting `held_out`;
- statistics say "a support of one token" where they said "a single next token", which merged tokens are not, and how
  many windows end in merged tokens; `explain` has shares of the text's windows, and how many windows a reason rests on;
- claims that 0.1.0 neither checked nor declared, such as the machine of a result, are declared as not checked;
- CKA, beside agreement in tables of explanations and in comparisons of texts, is not read any more.
"""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import tokengeom as tg
from golden.make import (
    AS_BEFORE,
    MADE_AGAIN,
    SETTINGS,
    describe,
    exit_codes,
    interface,
    kind_of,
    plain,
    read_json,
    run,
    sections,
)
from tokengeom.verification.comparisons import EARLIER
from tokengeom_studies.base import REPLACED

GOLDEN = Path(__file__).parent / "golden"
SAVED = sorted(path.name for path in (GOLDEN / "saved").iterdir() if path.is_dir())
COMMANDS = sorted(path.stem for path in (GOLDEN / "json").glob("*.json"))
INTERFACE = read_json(GOLDEN / "interface.json")
KINDS = {
    *("tokengeom-statistics", "tokengeom-pairs", "tokengeom-features", "tokengeom-at-loss", "tokengeom-path"),
    *("tokengeom-linear", "tokengeom-proxy", "tokengeom-run", "tokengeom-model", "tokengeom-comparison"),
    *("tokengeom-checkpoints", "tokengeom-rivals", "tokengeom-texts", "tokengeom-choice", "tokengeom-findings"),
    *("tokengeom-report", "tokengeom-export"),
}
"""Every kind that 0.1.0 saved."""
READ_AGAIN = 1e-9
"""Relative difference of numbers that are read from a file: nothing but a last digit may change."""
COMPUTED_AGAIN = 1e-6
"""Relative difference of numbers that are computed again: on another machine, sums are rounded in another order, and
iterations that stop at a tolerance amplify that. What is changed on purpose changes by more."""
JUDGED_AGAIN = 0.05
"""Difference of numbers that trainings, solves and fits of this session give: all of these amplify rounding, which
depends on the processor."""
ROUNDING = 1e-9
"""Numbers below this are differences that would be 0 without rounding, such as residuals."""
VARIABLE = {"machine", "tokengeom", "command", "seal", "files"}
"""Entries of a manifest that depend on who saves: the hashes of files are compared through their bytes."""
EXTENDED = {"tokengeom-comparison", "tokengeom-checkpoints", "tokengeom-rivals", "tokengeom-texts"}
"""Kinds that have more entries than in 0.1.0: their agreements have what is reproducible and explained."""
DECLARED = ("they are as recorded when it was made", "that training with these settings gives", "optimizer's memory")
"""What 0.1.0 did not check either, and did not say so."""
RENAMED = {"ceiling": "reproducible"}
"""Entries of 0.1.0 that have another name."""
DROPPED = {"cka", "context_cka", "token_cka"}
"""Entries of 0.1.0 that are not read any more."""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with copies of the inputs and of everything saved, where commands run: golden files name these paths."""
    for name in ("inputs", "saved"):
        shutil.copytree(GOLDEN / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def differences(now: Any, before: Any, tolerance: float, rounding: float = 0.0, place: str = "") -> list[str]:
    """Where two pieces of plain data differ: numbers by more than a tolerance, everything else at all."""
    if isinstance(now, dict) and isinstance(before, dict):
        if now.keys() != before.keys():
            return [f"{place}: entries {list(now)}, before {list(before)}"]
        pairs = [(f"{place}.{name}", now[name], before[name]) for name in before]
    elif isinstance(now, list) and isinstance(before, list):
        if len(now) != len(before):
            return [f"{place}: {len(now)} items, before {len(before)}"]
        pairs = [(f"{place}[{k}]", now[k], before[k]) for k in range(len(before))]
    else:
        return [] if _same(now, before, tolerance, rounding) else [f"{place}: {now!r}, before {before!r}"]
    return [said for name, new, old in pairs for said in differences(new, old, tolerance, rounding, name)]


def _same(now: Any, before: Any, tolerance: float, rounding: float) -> bool:
    if isinstance(now, float) and isinstance(before, float):
        both_nan = math.isnan(now) and math.isnan(before)
        return both_nan or math.isclose(now, before, rel_tol=tolerance, abs_tol=rounding)
    if isinstance(now, str) and isinstance(before, str) and rounding:
        strip = _without_numbers if rounding == JUDGED_AGAIN else _without_rounding
        return strip(now) == strip(before)
    return type(now) is type(before) and bool(now == before)


def _without_rounding(text: str) -> str:
    """A sentence in which numbers that are rounding alone, such as 2e-16, have no digits."""
    return re.sub(r"\b\d+(\.\d+)?e-(09|[1-9]\d)\b", "0", text)


def _without_numbers(text: str) -> str:
    """A sentence without its numbers, hashes, and which explanation or item is the first."""
    text = re.sub(r"(less|more) than (?=[\d.]+%)", "", re.sub(r"the best for .*", "", text))
    return re.sub(r"[-\d.]*\d[\d.]*(e-?\d+)?%?|[0-9a-f]{64}", "0", text)


def _comparable(printed: Any) -> Any:
    """What a command printed, without what depends on the processor: sizes of text files, and the order of
    explanations and of items that are nearly equal."""
    if not isinstance(printed, dict):
        return printed
    parts = {name: _comparable(value) for name, value in printed.items()}
    if "unexplained" in parts:
        parts["unexplained"] = [sorted(row) for row in parts["unexplained"]]
    if "explanations" in parts:
        parts["explanations"] = sorted(parts["explanations"], key=lambda row: (row["items"], row["rival"]))
    if "verdicts" in parts:
        # Said since, where the largest agreement is that of an explanation that is trained itself.
        parts["verdicts"] = [re.sub(r" without its own noise \([\d.]+\)", "", one) for one in parts["verdicts"]]
    if "moved" in parts:
        parts["moved"] = {items: sorted(found) for items, found in parts["moved"].items()}
    if isinstance(parts.get("checkpoints"), list):
        parts["checkpoints"] = [_comparable(one) for one in parts["checkpoints"]]
    if isinstance(parts.get("files"), dict):
        parts["files"] = sorted(parts["files"])
    return parts


def as_before(now: Any, before: Any) -> Any:
    """Plain data without the entries that were added since, and with those that were renamed under their old names."""
    if isinstance(now, dict) and isinstance(before, dict):
        names = {name: RENAMED.get(name, name) for name in before}
        return {name: as_before(now[new], before[name]) for name, new in names.items() if new in now}
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        return [as_before(*both) for both in zip(now, before, strict=True)]
    return now


def still_read(before: Any) -> Any:
    """Plain data of 0.1.0 without the entries that are not read any more."""
    if isinstance(before, dict):
        return {name: still_read(item) for name, item in before.items() if name not in DROPPED}
    return [still_read(item) for item in before] if isinstance(before, list) else before


def without_scale(text: str) -> str:
    """Sentences without the ceiling, or what is attainable, of each number, without CKA, and how to read numbers."""
    lines = (line for line in text.splitlines() if not line.startswith(("Brackets: ", "context_cka", "token_cka")))
    return re.sub(r", (ceiling|attainable) [\d.e-]+|; CKA [\d.e-]+", "", "\n".join(lines))


def as_worded_before(summary: str) -> str:
    """A summary in the words of 0.1.0, which explained less and did not say how many windows end in merged tokens."""
    lines = (line for line in summary.splitlines() if not line.endswith("of the windows end in (other tokens)."))
    summary = "\n".join(lines).replace("have a support of one token.", "have a single next token.")
    summary = summary.replace("windows in the statistics of the", "windows counted in the")
    summary = re.sub(r"(% of|Split:) the model's", r"\1 the run's", summary)
    summary = re.sub(r"The proxy is not exact: .*", "The proxy is not exact.", summary)
    return re.sub(r"(Rank \d+): .*dimension.*", r"\1.", summary)


def unchecked(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """What a verification fails, or no longer checks; the wording of checks is free, and a few may become one."""
    problems = [f"fails: {sentence}" for sentence in now["failed"] if not before["failed"]]
    measured_differently = [sentence for sentence in now["not_checked"] if EARLIER in sentence]
    declared = [sentence for sentence in now["not_checked"] if any(part in sentence for part in DECLARED)]
    if len(now["not_checked"]) - len(measured_differently) - len(declared) > len(before["not_checked"]):
        problems.append(f"not checked: {now['not_checked']}, before {before['not_checked']}")
    if not measured_differently and len(now["checked"]) < len(before["checked"]) / 2:
        problems.append(f"checked: {now['checked']}, before {before['checked']}")
    return problems


def test_every_kind_of_result_is_among_the_golden_folders() -> None:
    assert {kind_of(GOLDEN / "saved" / name) for name in SAVED} == KINDS
    assert sorted(path.stem for path in (GOLDEN / "expected").iterdir()) == SAVED


def test_every_command_is_among_the_golden_outputs() -> None:
    run_with = {f"tokengeom {read_json(GOLDEN / 'json' / f'{name}.json')['command'][0]}" for name in COMMANDS}
    assert {name for name in INTERFACE if name.startswith("tokengeom ")} <= run_with


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_folder_is_read_and_verified_as_before(work: Path, name: str) -> None:
    now, before = describe(Path("saved", name)), read_json(GOLDEN / "expected" / f"{name}.json")
    assert unchecked(now.pop("verify"), before.pop("verify")) == []
    if now["kind"] in {*EXTENDED, "tokengeom-report"}:
        before["to_dict"] = still_read(before["to_dict"])
        now["to_dict"] = as_before(now["to_dict"], before["to_dict"])
        for one in (now, before):
            one |= {name: without_scale(one[name]) for name in ("summary", "repr")}
    for one in (now, before):
        if "summary" in one:
            one["summary"] = as_worded_before(one["summary"])
    assert differences(now, before, READ_AGAIN) == []


@pytest.mark.parametrize("name", [name for name in SAVED if name != "export"])
def test_a_result_that_is_saved_again_has_the_same_files(work: Path, name: str) -> None:
    folder, again = work / "saved" / name, work / "again" / name
    again.parent.mkdir()
    result = tg.load(folder)
    result.save(again)
    if not (folder / "manifest.json").is_file():
        # The folder holds a snapshot, from which training can be resumed; the run alone is saved.
        assert differences(plain(tg.load(again).to_dict()), plain(result.to_dict()), READ_AGAIN) == []
        return
    files, now_files = files_in(folder), files_in(again)
    assert list(now_files) == list(files)
    for file, path in files.items():
        if path.name != "manifest.json":
            assert same_file(now_files[file], path), file
    manifests = [read_json(place / "manifest.json") for place in (again, folder)]
    now, before = ({key: value for key, value in one.items() if key not in VARIABLE} for one in manifests)
    assert differences(now, before, READ_AGAIN) == []
    if kind_of(folder) in EXTENDED:
        assert differences(plain(tg.load(again).to_dict()), plain(result.to_dict()), 0.0) == []


def files_in(folder: Path) -> dict[str, Path]:
    """Files by name; saving counted pairs again puts a number before the names of their parts."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {re.sub(r"^pairs/(\d+-)?", "pairs/", path.relative_to(folder).as_posix()): path for path in paths}


def same_file(now: Path, before: Path) -> bool:
    """Whether two files have the same bytes.

    For JSON to which entries were added, the same value of each other one; for Parquet, the same table where another
    version of pyarrow wrote it.
    """
    if now.read_bytes() == before.read_bytes():
        return True
    if before.suffix == ".json" and kind_of(before.parent) in EXTENDED:
        old = still_read(read_json(before))
        return differences(as_before(read_json(now), old), old, 0.0) == []
    if now.suffix == ".parquet":
        writers = {str(parquet.read_metadata(path).created_by) for path in (now, before)}
        same_table = parquet.read_table(now).equals(parquet.read_table(before), check_metadata=True)
        return len(writers) > 1 and bool(same_table)
    return False


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_it_printed(work: Path, name: str) -> None:
    before = read_json(GOLDEN / "json" / f"{name}.json")
    command = before.pop("command")
    now, before = (without_seconds(printed) for printed in (run(*command, *AS_BEFORE.get(name, ())), before))
    if name == "study-list":
        before["output"]["studies"] = {n: q for n, q in before["output"]["studies"].items() if n not in REPLACED}
    # Training has more settings than before.
    if name in AS_BEFORE or name == "study-list" or command[0] == "train":
        before = still_read(before)
        now = as_before(now, before)
    if command[0] == "report":
        # A report also says what was predicted for contexts that the text does not have.
        now = as_before(now, before)
    for printed in (now["output"], before["output"]):
        # Hash and size of a manifest that was just written depend on machine, version and time.
        if isinstance(printed, dict) and "--out" in command:
            printed.pop("hash", None)
            printed.get("files", {}).pop("manifest.json", None)
    if command[0] == "verify":
        parts = ("checked", "failed", "not_checked")
        lists = [{part: one["output"].pop(part) for part in parts} for one in (now, before)]
        assert unchecked(*lists) == []
    now, before = _comparable(now), _comparable(before)
    rounding = JUDGED_AGAIN if name in MADE_AGAIN else ROUNDING
    assert differences(now, before, COMPUTED_AGAIN, rounding) == []
    if name in INTERFACE["pages"]:
        assert sections(work / "made" / "report.html") == INTERFACE["pages"][name]


def test_a_text_that_is_counted_again_has_the_same_hash(work: Path) -> None:
    counted = tg.count("inputs/text.txt", **SETTINGS)
    assert counted.hash == read_json(GOLDEN / "expected" / "statistics.json")["to_dict"]["hash"]


def without_seconds(content: Any) -> Any:
    """Plain data without durations."""
    if isinstance(content, dict):
        return {name: without_seconds(value) for name, value in content.items() if name != "seconds"}
    return [without_seconds(item) for item in content] if isinstance(content, list) else content


def missing(now: Any, before: Any, place: str) -> list[str]:
    """What was there before, and is not there now or is something else; what is new does not count."""
    if isinstance(before, dict):
        if not isinstance(now, dict):
            return [f"{place}: {now!r}, before {before!r}"]
        gone = [f"{place}: {name}" for name in before if name not in now]
        kept = [name for name in before if name in now]
        if [name for name in now if name in kept] != kept:
            gone.append(f"{place}: the order is another one")
        return gone + [said for name in kept for said in missing(now[name], before[name], f"{place}: {name}")]
    if isinstance(before, list):
        return [f"{place}: {item}" for item in before if item not in now]
    may_be_repeated = now is True and place.endswith(": repeated")
    return [] if now == before or may_be_repeated else [f"{place}: {now!r}, before {before!r}"]


@pytest.mark.parametrize("name", [name for name in INTERFACE if name not in ("exit_codes", "pages")])
def test_what_a_user_could_name_can_still_be_named(name: str, current: dict[str, Any]) -> None:
    assert name in current
    # A study that was replaced is refused with the name of the one that answers its question.
    replaced = {f"tokengeom study: names: choices: {study}" for study in REPLACED}
    replaced |= {"tokengeom compare: --shared-tokens", "tokengeom.compare: parameters: shared_tokens"}
    replaced |= {"tokengeom rivals: --held-out", "tokengeom.rivals: parameters: held_out"}
    # Without a tokenizer, words are counted as before, unless the text is split into tokens already.
    replaced |= {"tokengeom count: --tokenizer: default: 'None', before 'word'"}
    was, now = "keyword_only, default 'word'", "keyword_only, default None"
    replaced |= {f"tokengeom.count: parameters: tokenizer: {now!r}, before {was!r}"}
    assert set(missing(current[name], INTERFACE[name], name)) <= replaced


@pytest.fixture(scope="module")
def current() -> dict[str, Any]:
    """Commands and names now."""
    return interface()


def test_exit_codes_mean_what_they_meant() -> None:
    assert exit_codes() == INTERFACE["exit_codes"]
