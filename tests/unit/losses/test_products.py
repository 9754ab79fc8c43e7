"""Products by either library are the same, whatever the number of labels, and so is what a loss makes of them."""

import pytest
import torch

from unidex.losses import LossGrad, Targets, decoupled_softmax, products, symmetric
from unidex.losses.gradient import inner_product_loss

NUM_TEXTS, DIM = 96, 64


def sides(num_labels):
    generator = torch.Generator().manual_seed(num_labels)
    texts, labels = torch.randn(NUM_TEXTS, DIM, generator=generator), torch.randn(num_labels, DIM, generator=generator)
    of_texts = [text * 3 % num_labels for text in range(NUM_TEXTS)]
    targets = Targets.of(range(NUM_TEXTS), of_texts, shape=(NUM_TEXTS, num_labels))
    return texts, labels, targets


def elsewhere(scores_BP, targets):
    """A loss that gives its gradient in memory of its own."""
    found = decoupled_softmax(scores_BP.clone(), targets)
    scores_BP.fill_(torch.nan)
    return LossGrad(found.value, found.gradient)


@pytest.mark.skipif(products._by_one_dnn() is None, reason="this torch was built without oneDNN")
@pytest.mark.parametrize("num_labels", [175, 256, 300])
@pytest.mark.parametrize("loss", [decoupled_softmax, symmetric, elsewhere])
def test_both_libraries_give_the_same_gradients(num_labels, loss, monkeypatch):
    texts, labels, targets = sides(num_labels)
    assert texts.numel() * num_labels >= products._MIN_TERMS
    shapes = []
    compiled = products._by_one_dnn()

    def counted(left, right):
        shapes.append((*left.shape, len(right)))
        return compiled(left, right)

    monkeypatch.setattr(products, "rows_with_rows", lambda: counted)
    found = inner_product_loss(texts, labels, torch.tensor(0.3), targets, loss)
    assert len(shapes) == 3
    padded = -(-num_labels // 128) * 128
    assert all(padded in shape for shape in shapes)
    monkeypatch.setattr(products, "rows_with_rows", lambda: None)
    expected = inner_product_loss(texts, labels, torch.tensor(0.3), targets, loss)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert found.labels_LD.is_contiguous()


def test_small_products_and_other_types_are_those_of_torch(monkeypatch):
    monkeypatch.setattr(products, "rows_with_rows", lambda: pytest.fail("not for these"))
    texts, labels, _ = sides(300)
    for some in ((texts[:8], labels[:8]), (texts.double(), labels.double())):
        assert torch.equal(products.PairProducts(*some).scores_BP, some[0] @ some[1].T)


@pytest.mark.parametrize(
    ("content", "is_one_dnn"),
    [
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\n", True),
        ("processor\t: 0\nvendor_id\t: GenuineIntel\n", False),
        ("Features : neon\n", False),
        (None, False),
    ],
)
def test_one_dnn_multiplies_where_mkl_is_slow(content, is_one_dnn, monkeypatch, tmp_path):
    monkeypatch.setattr(products, "_PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setattr(products, "_by_one_dnn", lambda: "oneDNN")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    if content is not None:
        (tmp_path / "cpuinfo").write_text(content)
    assert products.rows_with_rows.__wrapped__() == ("oneDNN" if is_one_dnn else None)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert products.rows_with_rows.__wrapped__() is None
