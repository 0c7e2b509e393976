"""What the checks of all kinds share."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tokengeom import NextTokenStatistics
from tokengeom.core.errors import InputError
from tokengeom.results.manifests import MANIFEST
from tokengeom.verification.verify import Verification, same, verify


@pytest.mark.parametrize(
    ("claimed", "again"),
    [
        ({"a": [1.0, None]}, {"a": (1.0 + 1e-9, math.nan)}),
        ("rank 3, gap 2.01e-3", "rank 3, gap 2.02e-3"),
        (["off by 3e-16"], ["off by 1e-12"]),
        (3, 3),
        (None, None),
    ],
)
def test_what_differs_by_rounding_is_the_same(claimed: object, again: object) -> None:
    assert same(claimed, again)


@pytest.mark.parametrize(
    ("claimed", "again"),
    [
        ({"a": 1.0}, {"a": 1.0, "b": 2.0}),
        ([1.0], [1.0, 2.0]),
        (1.0, 1.00001),
        (1.0, "1.0"),
        (1.0, math.nan),
        (3, 4),
        ("rank 3", "rank 4"),
        ("it agrees", "it does not agree"),
        (True, None),
        (1.0, True),
        (1, True),
    ],
)
def test_what_differs_by_more_is_not(claimed: object, again: object) -> None:
    assert not same(claimed, again)


def test_a_manifest_that_is_not_a_plain_file_is_refused(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1, 0], [1, 2]]).save(tmp_path / "results" / "inside")
    assert verify(tmp_path / "results")
    os.mkfifo(tmp_path / "results" / MANIFEST)
    with pytest.raises(InputError, match="must be a plain file; it is something else"):
        verify(tmp_path / "results")


@pytest.mark.parametrize("given", ["stats", True, None])
def test_results_beside_are_a_list(given: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="beside must be a list of folders"):
        verify(tmp_path, beside=given)


def small_results(folder: Path) -> Path:
    """Statistics at four depths, two of them in the folder of a run and inside another result."""
    stats = NextTokenStatistics.from_counts([[1, 0], [1, 2]])
    for name in ("top", "a/second", "a/b/third", "a/run/beside", "a/run/step-000000000005"):
        stats.save(folder / name)
    shutil.copytree(folder / "top", folder / "top" / "inside")
    return folder


def named(verification: Verification) -> set[str]:
    """What the sentences of a verification are about."""
    return {sentence.partition(": ")[0] for sentence in verification.checked}


def test_every_result_in_a_folder_is_verified_however_deep(tmp_path: Path) -> None:
    folder = small_results(tmp_path)
    shutil.rmtree(folder / "top" / "inside")
    whole = verify(folder)
    assert whole
    assert named(whole) == {"top", "a/second", "a/b/third", "a/run", "a/run/beside"}
    for name in ("a/b/third", "a/run/step-000000000005"):
        path = folder / name / "arrays.safetensors"
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        (failed,) = verify(folder).failed
        assert failed.startswith(f"{name.removesuffix('/step-000000000005')}: every file has the hash")
        path.write_bytes(content)


def test_what_lies_inside_a_result_belongs_to_it(tmp_path: Path) -> None:
    (failed,) = verify(small_results(tmp_path)).failed
    assert failed.startswith("top: every file has the hash in the manifest (inside/")


def test_links_and_hidden_folders_are_named_and_not_looked_into(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1, 0], [1, 2]]).save(tmp_path / "results" / "stats")
    (tmp_path / "results" / "round").symlink_to("..")
    (tmp_path / "results" / ".hidden").mkdir()
    found = verify(tmp_path / "results")
    assert found
    assert {one for one in found.not_checked if one.startswith(("round", ".hidden"))} == {
        "round: links are not followed",
        ".hidden: hidden folders are not looked into",
    }


def test_a_manifest_inside_that_is_not_a_plain_file_is_not_passed_over(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1, 0], [1, 2]]).save(tmp_path / "stats")
    (tmp_path / "a" / "b").mkdir(parents=True)
    os.mkfifo(tmp_path / "a" / "b" / MANIFEST)
    with pytest.raises(InputError, match=r"b/manifest\.json"):
        verify(tmp_path)
