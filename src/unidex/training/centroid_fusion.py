"""Fusion of classifiers with centroids: after training, the mean direction of a label's texts joins its classifier.

Astec adds two scores of a label, by its classifier and by the cosine to the centroid of its texts, which asks for two
vectors per label. A sum of inner products is the inner product with the sum, so that one vector is enough here.

Shapes: N texts, L labels of this process, D dimensions, without a bias.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse

from unidex.config import Config
from unidex.distributed import Processes
from unidex.nn.label_tree import label_centroids
from unidex.nn.network import Network
from unidex.training.training_set import TrainingSet


@torch.no_grad()
def add_centroids(network: Network, config: Config, data: TrainingSet, processes: Processes) -> None:
    """Add heads.classifier_centroid times the centroid of each label to its classifier; biases stay.

    Formula: w_l + weight c_l, with c_l the unit mean of the unit vectors of the label's texts, 0 without texts. The
    score of text x gains weight |x| cos(x, c_l).

    References: Astec (arXiv 2111.06685), whose score is beta sigmoid(classifier) + (1 - beta) sigmoid(cosine).
    """
    weight = config.heads.classifier_centroid
    if weight == 0 or network.classifiers is None or network.classifier is None:
        return
    network.eval()
    vectors = network.text_vectors(data.texts, processes).classifier
    assert vectors is not None
    dim = network.classifiers.dim - network.classifier.bias
    centroids_LD = label_centroids(vectors[:, :dim].cpu().numpy(), data.positives)
    assert not sparse.issparse(centroids_LD)
    own = np.ascontiguousarray(centroids_LD[processes.shard(data.positives.shape[1])])
    network.classifiers.weight[:, :dim] += weight * torch.from_numpy(own).to(network.device)
