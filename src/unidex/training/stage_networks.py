"""The networks and training sets of a run, stage by stage and trial by trial: all share one encoder and one tree."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from unidex.augment.label_points import check_label_texts
from unidex.config import Config
from unidex.data.concepts import further_texts
from unidex.data.dataset import Dataset
from unidex.distributed import Processes
from unidex.encoders import registry as encoders
from unidex.features.analyser import Analyser
from unidex.features.extractor import FeatureExtractor
from unidex.features.pretrained_columns import columns_of
from unidex.nn.assembly import build_network
from unidex.nn.initialisation import initialise_biases, initialise_classifiers
from unidex.nn.label_tree import LabelTree
from unidex.nn.network import BLOCK, Network
from unidex.nn.row_table import RowTable
from unidex.training.chosen_rows import chosen
from unidex.training.network_state import copied
from unidex.training.parts_setup import has_parts, label_graph, make_parts
from unidex.training.pretrained_vectors import BesideWords
from unidex.training.training_set import TrainingSet, with_label_points
from unidex.training.transfer import inherit, surrogate_set
from unidex.training.tree_setup import cluster_positives, grow_tree, learns_labels


class StageNetworks:
    """What the stages and trials of a run are trained on, and the networks that they start with.

    ``config`` is the recipe of the last stage; without a ``folder`` nothing is kept.
    """

    def __init__(
        self,
        dataset: Dataset,
        config: Config,
        *,
        seed: int,
        device: torch.device,
        folder: Path | None,
        processes: Processes,
    ) -> None:
        self.dataset, self.config, self.seed, self.device, self.folder = dataset, config, seed, device, folder
        self.processes = processes
        torch.manual_seed(seed)
        self._encoder = encoders.build_encoder(config, dataset.train.texts, dataset.labels.encoder_texts)
        self._initial: Mapping[str, torch.Tensor] | None = None
        self._previous: tuple[Network, Config] | None = None
        self._tree: LabelTree | None = None
        # Texts are read once: a resumed run finds them as the first one left them. One process writes, the rest read.
        self._encoder.cache = None if folder is None else folder / "prepared"
        if not processes.is_first:
            processes.barrier()
        self.texts = self._encoder.prepare(dataset.train.texts)
        self.labels = self._encoder.prepare(dataset.labels.encoder_texts)
        # Training points are single texts of labels, while a label's vector is that of all its texts.
        further, labels_of_further = further_texts(dataset.labels.concepts)
        points = further if config.augment.further_texts else []
        self._label_texts, self._further_labels = self.labels, labels_of_further[: len(points)]
        if further:
            self._label_texts = self._encoder.prepare([*dataset.labels.texts, *points])
        if processes.is_first:
            processes.barrier()
        self._encoder.cache = None

    @cached_property
    def analyser(self) -> Analyser:
        """Which words texts are read as: that of the encoder's features, also for the words of labels."""
        features = getattr(self._encoder, "features", None)
        if isinstance(features, FeatureExtractor):
            return features.analyser
        return Analyser.fit(self.dataset.train.texts, self.dataset.labels.encoder_texts, self.config.features)

    @property
    def beside_words(self) -> BesideWords | None:
        """What prepared texts have of a frozen encoder; None where they have words alone."""
        columns = columns_of(self._encoder)
        if columns is None:
            return None
        rows = {"train": self.texts}
        # Several texts of a label are joined for the encoder, while its vector beside is that of the first.
        if not self.dataset.labels.concepts:
            rows["labels"] = self.labels
        return BesideWords(columns, rows)

    def start_from(self, network: Network, config: Config) -> None:
        """Let later networks start where the network of a stage ended."""
        self._previous = network, config

    def start_trials(self) -> None:
        """Let every later network start with the encoder as it is now."""
        state = dict(self._encoder.state_dict())
        if self.shared_table is not None:
            state["table"] = self.shared_table.weight
        file = None if self.folder is None else self.folder / f"initial-{self.processes.rank}.safetensors"
        self._initial = copied(state, file)

    @property
    def shared_table(self) -> RowTable | None:
        """The row table of the encoder, which is one for all trials."""
        return getattr(self._encoder, "table", None)

    def _restore_encoder(self, state: Mapping[str, torch.Tensor]) -> None:
        self._encoder.load_state_dict({name: state[name] for name in state if name != "table"})
        if self.shared_table is not None:
            self.shared_table.load(state, "table")

    def training_set(self, config: Config, rows: NDArray[np.int64] | None) -> TrainingSet:
        """These train texts, or all, with the label texts that the recipe adds."""
        split = self.dataset.train if rows is None else self.dataset.train.take(rows)
        is_plain = config.augment.method == "none" and not config.train.surrogate and not config.has_tree
        take = chosen if is_plain else operator.getitem
        texts = self.texts if rows is None else take(self.texts, rows)
        data = TrainingSet(texts, self.labels, split.positives, split.filter_pairs)
        if config.augment.method != "none":
            check_label_texts(self.dataset)
            texts_of_labels = self._label_texts, self._further_labels
            data = with_label_points(data, config.augment, self.seed, self._encoder.stack, *texts_of_labels)
        if config.train.surrogate:
            # Labels are clustered by features; an encoder without features gives vectors in their place.
            features = data.texts if sparse.issparse(data.texts) else self._encoded(data.texts)
            words = self._encoder.word_counts(self.labels) if has_parts(config) else None
            return surrogate_set(data, features, config, self.seed, words)
        return data

    def network(self, config: Config, data: TrainingSet, rows: NDArray[np.int64] | None, phase: str) -> Network:
        """A network before training, or, in a later stage, as the previous stage left it."""
        torch.manual_seed(self.seed)
        if self._initial is not None:
            self._restore_encoder(self._initial)
        if encoders.get(config.encoder.kind).can.has_staged_dropout:
            self._encoder.set_dropout(config.encoder.dropout, config.encoder.layer_dropout)
        shard = self.processes.shard(data.labels.shape[0])
        if config.has_tree and self._tree is None:
            # One tree for all stages and trials.
            self._tree = grow_tree(data.texts, data.positives, config.tree, self.seed)
        tree = self._tree if config.has_tree else None
        folder = None
        if config.train.table_storage == "file":
            assert self.folder is not None
            folder = self.folder / phase
            folder.mkdir(parents=True, exist_ok=True)
        file = None if folder is None else self._table_file(folder, "classifiers")
        network = build_network(config, self._encoder, shard, self.device, tree, file)
        network.parts = make_parts(network, config, data, self.dataset.train.positives, rows, self.seed, self.processes)
        # Without dropout: initial classifiers are vectors as they are searched.
        network.eval()
        if config.heads.classifier_feature_smoothing > 0 and network.classifier_encoder is not None:
            network.classifier_encoder.smooth_rare_features(self.texts, config.heads.classifier_feature_smoothing)
        has_classifiers = has_tree = False
        if self._previous is not None:
            before, recipe = self._previous
            has_classifiers = inherit(network, before, same_labels=learns_labels(recipe) and learns_labels(config))
            has_tree = before.tree is not None
        if config.heads.classifier and not has_classifiers:
            graph = None
            if config.heads.classifier_init == "label-graph":
                known = self.dataset.train.positives if rows is None else self.dataset.train.positives[rows]
                graph = label_graph(known, config.augment, self.seed)
            initialise_classifiers(network, config, self.labels, data.texts, data.positives, self.processes, graph)
        if tree is not None and not has_tree and config.heads.classifier_bias != "none":
            assert network.tree is not None
            levels = zip(network.tree.tables, cluster_positives(tree, data.positives), strict=True)
            for table, positives in levels:
                rows_of_level, biases = slice(0, table.num_rows), table.weight[:, -1]
                initialise_biases(network, config.heads.classifier_bias, positives, rows_of_level, biases)
        if folder is not None:
            for name, table in network.tables().items():
                # Tables of the stage before, which is over, stay where they are.
                if table.file is None:
                    table.move_to(self._table_file(folder, name))
        return network

    def _table_file(self, folder: Path, name: str) -> Path:
        return folder / f"{name}.{self.processes.rank}.table"

    @torch.no_grad()
    def _encoded(self, texts: Any) -> NDArray[np.float32]:
        """Vectors of texts as the encoder gives them now."""
        self._encoder.to(self.device).eval()
        blocks = [self._encoder(texts[start : start + BLOCK]) for start in range(0, texts.shape[0], BLOCK)]
        return torch.cat(blocks).cpu().numpy()
