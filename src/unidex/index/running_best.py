"""The best places so far, by torch, for scores that come block by block.

The columns of a block are cut into groups of adjacent columns; the maximum of a group decides whether it is
examined. Once the running best are good, few groups are. So the choice costs little beside the matrix product that
made the scores, less than ``torch.topk`` or ``numpy.argpartition`` over the block (docs/reference/search-index.md), and
it keeps the law of ties, which neither of them does.

Shapes: B texts, N labels of a block, G groups of a block, W labels of a group, K places.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unidex.index.best_places import GROUP, NOT_A_NUMBER
from unidex.topk import PADDING, TopK


class RunningTopK:
    """The best places seen so far, for texts whose scores come block by block in ascending order of label id.

    A label enters only if its score is above the K-th best so far (a tie stays with the lower id, which came first).
    """

    def __init__(self, num_texts: int, k: int, device: torch.device) -> None:
        self.scores_BK = torch.full((num_texts, k), -torch.inf, device=device)
        self.ids_BK = torch.full((num_texts, k), PADDING, dtype=torch.int64, device=device)

    def offer(self, texts: slice, scores_BN: Tensor, ids_N: Tensor) -> None:
        """Merge a block of scores of these texts; N is a multiple of ``GROUP``, a score of -inf is no label."""
        best_BK, k = self.scores_BK[texts], self.scores_BK.shape[1]
        num_texts, num_groups = len(scores_BN), scores_BN.shape[1] // GROUP
        max_BG = scores_BN.view(num_texts, num_groups, GROUP).amax(dim=2)
        if bool(max_BG.isnan().any()):
            raise ValueError(NOT_A_NUMBER)
        # The smallest number that enters: just above the K-th best, so never -inf.
        bound_B = best_BK[:, -1].nextafter(torch.tensor(torch.inf, device=best_BK.device))
        hit_BG = max_BG >= bound_B[:, None]
        if k < num_groups and int(hit_BG.sum()) > k * num_texts:
            # K groups have a maximum of at least the K-th highest maximum, so the K best labels are at least as good.
            bound_B = bound_B.maximum(max_BG.topk(k, dim=1, sorted=False).values.amin(dim=1))
            hit_BG = max_BG >= bound_B[:, None]
        hits = hit_BG.flatten().nonzero().squeeze(1)
        if len(hits) == 0:
            return
        text_of_hit = hits // num_groups
        candidates_HW = scores_BN.view(-1, GROUP).index_select(0, hits)
        hit, offset = (candidates_HW >= bound_B[text_of_hit, None]).nonzero(as_tuple=True)
        text, score = text_of_hit[hit], candidates_HW[hit, offset]
        label = ids_N[hits[hit] % num_groups * GROUP + offset]

        # Of many labels that tie at the bound (all of them, for a vector of zeros) only the K lowest ids can stay.
        tied = score == bound_B[text]
        kept = ~tied | (_rank_in_row(text, tied, num_texts) < k)
        text, score, label = text[kept], score[kept], label[kept]
        place = k + _rank_in_row(text, torch.ones_like(text, dtype=torch.bool), num_texts)
        width = int(place.max()) + 1
        merged_scores = torch.full((num_texts, width), -torch.inf, device=score.device)
        merged_ids = torch.full((num_texts, width), PADDING, dtype=torch.int64, device=score.device)
        merged_scores[:, :k], merged_ids[:, :k] = best_BK, self.ids_BK[texts]
        merged_scores[text, place], merged_ids[text, place] = score, label
        # Ids ascend among equal scores in `merged`, so a stable sort keeps the lower one first.
        sorted_scores, order = merged_scores.sort(dim=1, descending=True, stable=True)
        self.scores_BK[texts] = sorted_scores[:, :k]
        self.ids_BK[texts] = merged_ids.gather(1, order[:, :k])

    def result(self) -> TopK:
        """The places as they are now."""
        return TopK(self.ids_BK.cpu().numpy(), self.scores_BK.cpu().numpy())


def _rank_in_row(row_P: Tensor, counted_P: Tensor, num_rows: int) -> Tensor:
    """How many counted entries stand before each entry in its row, for entries sorted by row."""
    before_P = counted_P.cumsum(0) - counted_P.long()
    first_R = torch.searchsorted(row_P, torch.arange(num_rows, device=row_P.device))
    return before_P - before_P[first_R[row_P]]
