"""A small part of the campaign finds no defect, and the campaign notices one where there is one."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign.conditions import READ
from campaign.forging import Forgery, judged_forgery, leaves, number
from campaign.forks import HUNG, Ended, Place
from campaign.kills import _is_probe
from campaign.manifests import COVERED, OF_THE_TEXT, RECORDED
from campaign.material import Material
from campaign.mutations import mutated_arrays, mutated_bytes, mutated_json
from campaign.python_values import CALLS, OWNERS, python_tries
from campaign.saved import MANIFEST, listing
from campaign.tries import (
    DECLARED,
    NOTICED,
    Figures,
    Try,
    even_shares,
    generator,
    judged_again,
    weighted_shares,
    wrong_end,
)

ROOT = Path(__file__).parents[2]
CLEAR = Ended(2, "", "Error: The text is empty. Check the path.\n", 0.1)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The figures of the small part, run as a process of its own: a process that forks must not have threads."""
    file = tmp_path_factory.mktemp("campaign") / "figures.json"
    command = [sys.executable, "-m", "campaign", "--quick", "--jobs", "1", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize(("part", "least"), [("kills", 5), ("writers", 4), ("inputs", 60), ("forgeries", 5)])
def test_a_small_part_of_the_campaign_finds_no_defect(figures: dict[str, Any], part: str, least: int) -> None:
    assert figures[part]["defects"] == {}
    assert figures[part]["tried"] >= least
    judged = [figures[part][one] for one in ("clear", NOTICED, DECLARED)]
    assert sum(judged) == figures[part]["tried"]


def test_clear_ends_are_told_from_defects() -> None:
    assert wrong_end(CLEAR) is None
    assert wrong_end(Ended(0, "41 tokens\n", "Note: few tokens.\n", 0.1)) is None
    wrong = {
        "a signal": Ended(-11, "", "", 0.1),
        "a hang": Ended(-9, "", "", 60.0, hung=True),
        "a traceback": Ended(2, "", "Traceback (most recent call last):\n", 0.1),
        "a panic": Ended(2, "", "thread '<unnamed>' panicked at src/lib.rs\nError: x\n", 0.1),
        "blame": Ended(2, "", "Error: This is a defect of tokengeom, not of your input: KeyError\n", 0.1),
        "two paragraphs": Ended(2, "", "Error: a\nError: b\n", 0.1),
        "no paragraph": Ended(2, "", "", 0.1),
        "another exit code": Ended(1, "", "", 0.1),
        "an escape sequence": Ended(0, "\x1b[31mred", "", 0.1),
    }
    assert [name for name, ended in wrong.items() if wrong_end(ended) is None] == []


def test_a_forgery_must_be_found_or_listed() -> None:
    by_hash = "the result's hash is the expected one"
    listed, must_fail = (Forgery("a number", "run", lambda folder: None, covered) for covered in ("seconds", None))
    by_check = {"failed": [by_hash, "the loss is the same"], "not_checked": []}
    assert judged_forgery(must_fail, by_check) == NOTICED
    said = {"failed": [by_hash], "not_checked": ["seconds: only training again shows them"]}
    assert judged_forgery(listed, said) == DECLARED
    for forgery, found in (
        (must_fail, {"failed": [by_hash], "not_checked": []}),
        (listed, {"failed": [by_hash], "not_checked": ["settings"]}),
        (must_fail, {"failed": ["the loss is the same"], "not_checked": []}),
    ):
        assert judged_forgery(forgery, found) not in (NOTICED, DECLARED)


def test_what_must_be_declared_is_what_verify_says() -> None:
    """A sentence of `verify` that is worded anew would make every forgery of what it covers a defect."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "studies" / "src").rglob("*.py")]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    said = "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    covered = [one for places in (RECORDED, OF_THE_TEXT, *COVERED.values()) for one in places.values()]
    assert [one for one in covered if one not in said] == []


def test_every_function_and_every_method_of_every_owner_is_called_with_other_values() -> None:
    material = Material(Path("not read here"))
    found = [one.name.removeprefix("inputs/Python: ") for one in python_tries(material, 0, 1000)]
    methods = {f"{owner}.{method}" for owner, one in OWNERS.items() for method in one.methods}
    assert methods <= {name.removesuffix("/as it is") for name in found if name.endswith("/as it is")}
    changed = {name.partition("/")[0] for name in found if " is " in name.partition("/")[2] and "as it is" not in name}
    assert {name.partition(".")[0] for name in changed & methods} == set(OWNERS)
    assert {*CALLS} <= changed


def test_a_name_that_must_not_be_in_an_export_is_refused(tmp_path: Path) -> None:
    words, arrays = tmp_path / "tokens.txt", tmp_path / "tokens.npz"
    words.write_text("3 1\n=1+2 0.5\n\u202egpj 0.5\ntwo words 0.5\n", encoding="utf-8")
    np.savez(arrays, names=np.array(["=1+2", "a\nb"]))
    refused = {
        path.name: [one for one in read(path) if must_not(one)]
        for path, (read, must_not) in ((words, READ["word2vec"]), (arrays, READ["numpy"]))
    }
    assert refused == {"tokens.txt": ["\u202egpj", "\0two words 0.5"], "tokens.npz": ["a\nb"]}


def test_a_try_that_hung_is_made_again(tmp_path: Path) -> None:
    made = []

    def hangs_once(folder: Path) -> str | None:
        made.append(folder)
        HUNG.append(60.0)
        return "it hangs" if len(made) == 1 else None

    try:
        assert judged_again(Try("slow", hangs_once), tmp_path) is None
    finally:
        HUNG.clear()
    assert made == [tmp_path, tmp_path / "again"]


def test_every_value_of_a_manifest_has_a_place() -> None:
    found = {"a": 1, "b": {"c": [], "d": [{"e": 1}, {"e": 2}, {"f": 3}]}, "g": [1, 2]}
    assert list(leaves(found)) == [("a",), ("b", "c"), ("b", "d", 0, "e"), ("b", "d", 2, "f"), ("g",)]


@pytest.mark.parametrize("value", [1, 0.5, 0.0, True, "A sentence.", ["a", "b"], [], {"name": "adam"}, None])
def test_a_forged_value_is_another_value(value: object) -> None:
    assert number(value) != value


def test_mutations_are_seeded() -> None:
    content, arrays = b'{"text": "a b c", "id": [1, 2]}' * 3, {"W": np.eye(3), "ids": np.arange(4)}
    for k in range(50):
        one, two = (mutated_bytes(content, generator(k, "x")) for _ in range(2))
        assert one == two
    assert len({mutated_bytes(content, generator(k, "x")) for k in range(50)}) > 40
    assert len({mutated_json(content[: len(content) // 3], generator(k, "x")) for k in range(50)}) > 20
    assert sum(set(mutated_arrays(arrays, generator(k, "x"))) != set(arrays) for k in range(50)) > 5


def test_tries_are_shared_out() -> None:
    assert even_shares(10, [2, 100, 100]) == [2, 4, 4]
    assert even_shares(10, [2, 3]) == [2, 3]
    assert sum(weighted_shares(101, [9, 4, 4, 1])) == 101
    assert weighted_shares(18, [9, 4, 4, 1]) == [9, 4, 4, 1]


def test_a_listing_shows_links_and_empty_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    (tmp_path / MANIFEST).write_text("{}")
    name = tmp_path.name
    assert listing(tmp_path) == [f"{name}/a/", f"{name}/b -> a", f"{name}/{MANIFEST}"]


def test_figures_count_tries_and_defects_by_group() -> None:
    found = Figures("kills", defects={"kills/count/1": "lost"})
    found.tried.update({"kills/count": 4})
    found.judged.update({"clear": 2, DECLARED: 1})
    assert found.line().startswith("kills: 4 tried, 2 clear, 1 declared, 1 defects")
    assert found.to_dict()["groups"] == {"kills/count": {"tried": 4, "defects": 1}}


def test_the_page_has_the_figures_that_were_kept() -> None:
    lines = (ROOT / "docs" / "campaign.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    kept = sorted((ROOT / "campaign" / "figures").glob("*.json"))
    assert kept
    for file in kept:
        ((part, found),) = json.loads(file.read_text()).items()
        assert file.stem == f"{part}-{found['seed']}"
        numbers = [found[one] for one in ("seed", "tried", "clear", NOTICED, DECLARED)] + [len(found["defects"])]
        shown = [f"{number:,}" if number or place in (0, 5) else "" for place, number in enumerate(numbers)]
        seconds = f"({found['seconds']:,.0f} s)"
        wanted = [row for row in rows if seconds in row[0]]
        assert [[*row[1:-1], row[-1].partition(",")[0]] for row in wanted] == [shown], file.name


def test_only_the_probe_of_pythons_own_library_may_be_left_over(tmp_path: Path) -> None:
    place = Place.inside(tmp_path)
    for name, content in (("wb0hpol_", b"blat"), ("abcdefgh", b"data"), ("longer_name", b"blat")):
        (place.temporary / name).write_bytes(content)
    names = ("wb0hpol_", "abcdefgh", "longer_name")
    assert [_is_probe(f"temporary/{name}", place) for name in names] == [True, False, False]
