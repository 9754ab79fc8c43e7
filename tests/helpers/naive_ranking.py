"""The learned ranker the slow way: every feature by its definition over all labels, and scores by the formula."""

import lightgbm
import numpy as np

from unidex.metrics.propensity import inverse_propensity
from unidex.scoring.matches import MATCHES


def naive_gap(values, candidates):
    """The distance of each candidate to the highest value among the candidates of its text."""
    found = np.full(values.shape, np.nan)
    for text, row in enumerate(values):
        own = np.flatnonzero(candidates[text])
        for label in own:
            found[text, label] = max(row[other] for other in own) - row[label]
    return found


def naive_place(values, candidates):
    """The number of candidates of the text with a higher value."""
    found = np.full(values.shape, np.nan)
    for text, row in enumerate(values):
        own = np.flatnonzero(candidates[text])
        for label in own:
            found[text, label] = sum(row[other] > row[label] for other in own)
    return found


def naive_ranking_features(parts, weights, frequencies, lexical, texts, candidates, nearest):
    """All features of a learned ranker, texts x labels each; NaN for a label that is no candidate.

    Args:
        parts: texts x labels scores of the heads or the label tree, and of "knn".
        weights: of "knn", "label_prior" and the other parts in the weighted sum.
        frequencies: train texts per label.
        lexical: a `NaiveLexical` over the labels.
        texts: the texts.
        candidates: texts x labels, whether a label is a candidate.
        nearest: similarity of each text with its nearest train text.
    """
    known = parts | {"label_prior": np.log(1 + np.asarray(frequencies, dtype=float))[None]}
    total = sum(weight * known[name] for name, weight in weights.items()) + np.zeros(candidates.shape)
    compared = {
        name: np.asarray(values, dtype=np.float32) for name, values in (parts | {"weighted_sum": total}).items()
    }
    found = {}
    for name, values in compared.items():
        found |= {name: values, f"{name}_gap": naive_gap(values, candidates)}
        found[f"{name}_place"] = naive_place(values, candidates)
    labels = range(len(frequencies))
    overlaps = {
        "word_overlap": lambda text, label: lexical.overlap("word", text, label),
        "char_overlap": lambda text, label: lexical.overlap("char", text, label),
        "word_coverage": lexical.coverage,
    }
    for name, of_pair in overlaps.items():
        values = np.array([[round(of_pair(text, label), 6) for label in labels] for text in texts], dtype=np.float32)
        found |= {name: values, f"{name}_gap": naive_gap(values, candidates)}
    of_texts = [(text, lexical.matches.of(text)) for text in texts]
    matches = [[lexical.matches.features(text, label, found) for label in labels] for text, found in of_texts]
    for name in MATCHES:
        found[name] = np.array([[of_pair[name] for of_pair in row] for row in matches], dtype=np.float32)
    found["best_sum"] = np.where(candidates, compared["weighted_sum"], -np.inf).max(axis=1, keepdims=True)
    found["nearest_text"] = np.maximum(nearest, 0)[:, None]
    found["frequency"] = np.asarray(frequencies)[None]
    found["label_length"] = np.array([[lexical.label_length(label) for label in labels]])
    found["text_length"] = np.array([[lexical.text_length(text)] for text in texts])
    return {name: np.where(candidates, values, np.nan) for name, values in found.items()}


def naive_learned_scores(fitted, features, propensity):
    """ln p + power ln ip, texts x labels; -inf for a label that is no candidate."""
    candidates = ~np.isnan(features["frequency"])
    columns = np.stack([features[name][candidates] for name in fitted.names], axis=1).astype(np.float32)
    logits = lightgbm.Booster(model_str=fitted.trees).predict(columns, raw_score=True)
    weights = inverse_propensity(features["frequency"][candidates].astype(int), fitted.rarity.num_train, propensity)
    scores = np.full(candidates.shape, -np.inf)
    scores[candidates] = np.log(1 / (1 + np.exp(-logits))) + fitted.rarity.power * np.log(weights)
    return scores
