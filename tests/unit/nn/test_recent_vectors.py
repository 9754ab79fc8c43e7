"""Vectors of texts are made once as long as the weights stay as they are."""

import torch

from unidex.features.tokens import TokenRows
from unidex.nn.recent_vectors import RecentVectors


class Encoder:
    """Sums of token ids, times a weight; counts its calls."""

    def __init__(self):
        self.weight, self.calls = torch.nn.Parameter(torch.ones(1)), 0

    def __call__(self, rows):
        self.calls += 1
        sums = [[float(sum(tokens))] for tokens in rows.as_lists()]
        return (torch.tensor(sums) * self.weight).detach()


def rows_of(*starts, count=300):
    return [TokenRows.of([[start, number] for number in range(count)], max_length=4) for start in starts]


def test_the_same_texts_are_encoded_once_until_a_weight_changes():
    encoder, recent = Encoder(), RecentVectors()
    (rows,) = rows_of(7)
    first = recent.of(rows, [encoder.weight], encoder)
    again = recent.of(rows[:], [encoder.weight], encoder)
    assert encoder.calls == 1
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    optimiser = torch.optim.AdamW([encoder.weight], lr=0.5, fused=True)
    encoder.weight.grad = torch.ones(1)
    optimiser.step()
    recent.expect_new_weights()
    torch.testing.assert_close(recent.of(rows, [encoder.weight], encoder), encoder(rows))
    assert encoder.calls == 3


def test_vectors_stay_where_weights_might_have_changed_but_did_not():
    encoder, recent = Encoder(), RecentVectors()
    (rows,) = rows_of(7)
    for _ in range(2):
        recent.expect_new_weights()
        recent.of(rows, [encoder.weight], encoder)
    assert encoder.calls == 1


def test_other_texts_are_not_taken_for_the_same():
    encoder, recent = Encoder(), RecentVectors()
    one, other = rows_of(7, 8)
    assert not torch.equal(recent.of(one, [encoder.weight], encoder), recent.of(other, [encoder.weight], encoder))
    # The same tokens, cut otherwise.
    flat = TokenRows.of([[1, 2]] + [[3]] * 299, max_length=4)
    cut = TokenRows.of([[1], [2, 3]] + [[3]] * 298, max_length=4)
    assert not torch.equal(recent.of(flat, [encoder.weight], encoder), recent.of(cut, [encoder.weight], encoder))


def test_a_caller_may_change_what_it_got():
    encoder, recent = Encoder(), RecentVectors()
    (rows,) = rows_of(7)
    recent.of(rows, [encoder.weight], encoder).zero_()
    recent.of(rows, [encoder.weight], encoder).zero_()
    assert float(recent.of(rows, [encoder.weight], encoder)[1]) == 8.0


def test_few_texts_and_the_oldest_vectors_are_not_kept():
    encoder, recent = Encoder(), RecentVectors(max_bytes=2 * 300 * 4)
    (few,) = rows_of(7, count=20)
    for _ in range(2):
        recent.of(few, [encoder.weight], encoder)
    assert encoder.calls == 2
    one, two, three = rows_of(1, 2, 3)
    for rows in (one, two, one, three, one):
        recent.of(rows, [encoder.weight], encoder)
    assert encoder.calls == 5
    recent.of(two, [encoder.weight], encoder)
    assert encoder.calls == 6


def test_texts_are_known_in_one_piece_and_in_blocks():
    encoder, recent = Encoder(), RecentVectors()
    (rows,) = rows_of(7, count=1100)
    whole = recent.of(rows, [encoder.weight], encoder)
    assert encoder.calls == 3
    torch.testing.assert_close(whole, encoder(rows), rtol=0, atol=0)
    parts = [recent.of(rows[start : start + 512], [encoder.weight], encoder) for start in (0, 512, 1024)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=0)
    assert encoder.calls == 4
