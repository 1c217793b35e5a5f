"""A server reads and writes in its root only."""

from __future__ import annotations

import pytest

from traincheck.agents.root import Root
from traincheck.errors import TraincheckError


def test_paths_inside(tmp_path):
    root = Root.of(tmp_path)
    assert root.path("runs/a") == tmp_path.resolve() / "runs/a"
    assert root.path(str(tmp_path / "runs/a")) == root.path("./runs/b/../a")
    assert root.shown(root.path("runs/a")) == "runs/a"
    assert root.path(".") == tmp_path.resolve()


@pytest.mark.parametrize("text", ["..", "../other", "/etc/passwd", "runs/../../x", "", "a\0b", "link/x"])
def test_paths_outside_are_refused(tmp_path, text):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    with pytest.raises(TraincheckError) as caught:
        Root.of(tmp_path / "root").path(text)
    assert caught.value.hint


def test_a_name_that_only_begins_like_the_root_is_outside(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root2").mkdir()
    with pytest.raises(TraincheckError, match="outside"):
        Root.of(tmp_path / "root").path(str(tmp_path / "root2"))


@pytest.mark.parametrize("text", [".", "runs/..", "./"])
def test_the_root_is_no_output(tmp_path, text):
    with pytest.raises(TraincheckError, match="the root itself"):
        Root.of(tmp_path).output(text)
    assert Root.of(tmp_path).output("a") == tmp_path.resolve() / "a"


def test_the_root_itself_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    root = Root.of(tmp_path / "link")
    assert root.path(str(tmp_path / "link" / "run")) == tmp_path.resolve() / "real" / "run"


def test_no_root(tmp_path):
    with pytest.raises(TraincheckError, match="--root"):
        Root.of(tmp_path / "none")
