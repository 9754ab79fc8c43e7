"""Centres in groups: the nearest centre, or one nearly as near."""

import numpy as np
import pytest

from unidex.index import centre_groups
from unidex.index.centre_groups import CentreGroups


def unit(number, seed):
    vectors = np.random.default_rng(seed).standard_normal((number, 16)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def centres():
    return unit(300, 0)


def test_with_all_groups_the_centre_is_the_nearest(centres, monkeypatch):
    monkeypatch.setattr(centre_groups, "GROUPS_COMPARED", 20)
    vectors = unit(1000, 1)
    found = CentreGroups(centres, centres[:20]).nearest(vectors)
    assert found.tolist() == (vectors @ centres.T).argmax(axis=1).tolist()


def test_with_few_groups_the_centre_is_nearly_as_near(centres):
    vectors = unit(2000, 2)
    found = CentreGroups(centres, centres[:20]).nearest(vectors)
    scores = vectors @ centres.T
    lost = scores.max(axis=1) - scores[np.arange(len(vectors)), found]
    assert 0 <= lost.mean() < 0.05
    assert (lost == 0).mean() > 0.6


def test_a_vector_finds_its_centre_whatever_else_is_asked_for(centres, monkeypatch):
    vectors, groups = unit(1000, 3), CentreGroups(centres, centres[:20])
    wanted = groups.nearest(vectors).tolist()
    monkeypatch.setattr(centre_groups, "VECTORS_AT_ONCE", 64)
    assert groups.nearest(vectors).tolist() == wanted
    assert groups.nearest(vectors[:0]).tolist() == []


def test_groups_without_centres_do_no_harm(centres):
    # The last group is far from every centre.
    groups = np.concatenate([centres[:3], -centres.mean(axis=0, keepdims=True) * 0 - 10])
    found = CentreGroups(centres[:3], groups).nearest(centres[:3])
    assert found.tolist() == [0, 1, 2]
