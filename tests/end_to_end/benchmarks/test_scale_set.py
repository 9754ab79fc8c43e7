"""Generated sets: the same whatever the blocks, readable as a data set, with the structure that they promise."""

import numpy as np

import scale_set
from scale_set import ScaleSet, write_set
from unidex.data.formats import read


def test_a_set_does_not_depend_on_blocks_and_has_its_structure(tmp_path, monkeypatch):
    scale = ScaleSet(3001, 4000, num_test=100)
    write_set(tmp_path / "whole", scale)
    monkeypatch.setattr(scale_set, "ROWS_AT_ONCE", 700)
    write_set(tmp_path / "blocks", scale)
    for file in (tmp_path / "whole").iterdir():
        assert file.read_bytes() == (tmp_path / "blocks" / file.name).read_bytes(), file.name
    data = read(tmp_path / "whole", None)
    assert (data.num_labels, len(data.train), len(data.test)) == (3001, 4000, 100)
    labels = list(data.labels.texts)
    assert len(set(labels)) > 0.99 * len(labels)
    assert all(len(text.split()) == 4 for text in labels[:100])
    # Most texts show words of their labels; those whose labels are random do not.
    shares = []
    for row in range(500):
        wanted = labels[data.train.positives.indices[data.train.positives.indptr[row]]].split()
        shares.append(np.mean([word in data.train.texts[row].split() for word in wanted]))
    assert 0.06 < np.mean(np.array(shares) < 0.3) < 0.16
    assert 0.8 < np.mean(np.array(shares)[np.array(shares) >= 0.3]) < 0.95
    counts = data.label_frequencies()
    assert counts.max() > 20 * counts.mean()
    per_text = np.diff(data.train.positives.indptr)
    assert set(per_text.tolist()) == {1, 2}
