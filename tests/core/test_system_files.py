"""Plain files: links may lead to one, and what is no plain file is refused at once, with what it is."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from tokengeom.core.errors import InputError
from tokengeom.core.system import file_hash, is_plain_name, require_regular


def test_a_file_that_a_user_names_may_be_a_link_and_must_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    require_regular(tmp_path / "link")
    require_regular(tmp_path / "missing")
    assert file_hash(tmp_path / "link") == file_hash(tmp_path / "text") == hashlib.sha256(b"text").hexdigest()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, what in (
            ("pipe", "a named pipe"),
            ("socket", "a socket"),
            (".", "a folder"),
            ("/dev/null", "a device"),
        ):
            with pytest.raises(InputError, match=what):
                require_regular(tmp_path / name)


def test_an_input_file_without_permission_is_refused_before_a_library_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="permission denied"):
        require_regular(tmp_path / "a.parquet")


def test_plain_names_have_no_path() -> None:
    assert all(map(is_plain_name, ("run-ufm", "page.html", ".hidden")))
    assert not any(map(is_plain_name, ("", ".", "..", "a/b", "/a", "a\\b", "a\0")))
