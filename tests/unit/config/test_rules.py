"""Every rule refuses an example and no shipped recipe; the table of rules says what each is about."""

import subprocess
import sys

import pytest

from unidex.config import Config
from unidex.config.capabilities import EncoderCapabilities
from unidex.config.recipe import merged, parse, settings_with_meaning
from unidex.config.recipes import load, recipe_names
from unidex.config.rules import RULES, Facts, check, check_rules, rules_markdown
from unidex.encoders import registry
from unidex.errors import ConfigError

TREE = {
    "tree": {"levels": [4]},
    "heads": {"dual": False, "classifier_search_vectors": "plain"},
    "pool": {"hard_negatives": 0},
}
# For each rule, settings and facts that it refuses, and what it finds there.
EXAMPLES = [
    ({"heads": {"dual": False, "classifier": False}}, {}, "heads.classifier = false"),
    (merged(TREE, {"predict": {"index": "hnsw"}}), {}, "predict.index = 'hnsw'"),
    (merged(TREE, {"heads": {"classifier_search_vectors": "unit"}}), {}, "heads.classifier_search_vectors other than"),
    (merged(TREE, {"pool": {"labels": "all"}}), {}, "pool.labels = 'all'"),
    (
        merged(TREE, {"tree": {"layers": [[1]]}}),
        {"encoder": EncoderCapabilities()},
        "encoder.kind = 'bag', an encoder without layers",
    ),
    ({"train": {"surrogate": 4}, "heads": {"dual": False}}, {}, "train.surrogate = 4"),
    ({"train": {"surrogate": 4}}, {"is_last": False}, "heads.dual = true"),
    ({"train": {"decay_epochs": 2}}, {"num_stages": 2}, "train.decay_epochs = 2"),
    (
        {"heads": {"dim": 3}},
        {"num_stages": 2, "is_last": False, "stage": "first", "last": Config()},
        "heads.dim = 3 in the stage 'first' but not in the last",
    ),
    ({"predict": {"rank": "decision-tree"}}, {}, "train.validation = 0"),
    (
        {"train": {"freeze_encoder": True}, "heads": {"classifier": False, "projection": False}},
        {},
        "nothing else that learns",
    ),
    ({"heads": {"classifier_parts": ["text"]}}, {"encoder": EncoderCapabilities()}, "an encoder without word vectors"),
    ({"heads": {"shared_encoder": False}}, {"encoder": EncoderCapabilities()}, "an encoder without a twin"),
    ({}, {"encoder": EncoderCapabilities(needs_whole_batch=True), "num_processes": 2}, "2 processes"),
    ({"augment": {"method": "gandalf"}}, {"has_label_texts": False}, "augment.method = 'gandalf'"),
    ({"train": {"table_storage": "file"}}, {"device": "cuda"}, "another device than cpu"),
]


def test_there_are_few_rules_and_each_has_an_example():
    assert len(RULES) == len(EXAMPLES) <= 16


@pytest.mark.parametrize(("rule", "example"), list(zip(RULES, EXAMPLES, strict=True)), ids=range(len(RULES)))
def test_a_rule_refuses_its_example_with_reason_and_remedy(rule, example):
    settings, run, found = example
    facts = Facts(parse(settings, where="test"), **run)
    assert rule.conflict(facts) is not None
    assert rule.conflict(Facts(Config())) is None
    with pytest.raises(ConfigError) as refused:
        check(facts)
    assert str(refused.value).startswith(f"{rule.reason}, but ")
    assert found in str(refused.value)
    assert str(refused.value).endswith(rule.remedy)


@pytest.mark.parametrize("recipe", recipe_names())
def test_no_rule_refuses_a_shipped_recipe(recipe):
    config = load(recipe)
    check_rules(config.in_stages(), encoder=registry.get(config.encoder.kind).can)


def test_rules_name_settings_that_exist():
    known = {name for name, _, _ in settings_with_meaning()}
    named = {name for rule in RULES for name in (*rule.when, *rule.never) if "." in name}
    assert {name for name in named if not name.startswith("encoder_can.")} <= known
    for name in named - known:
        assert hasattr(EncoderCapabilities(), name.removeprefix("encoder_can."))


def test_rules_about_an_encoder_wait_until_it_is_known():
    check(Facts(parse({"train": {"chunk": 4}, "heads": {"shared_encoder": False}}, where="test")))


def test_dropout_differs_between_stages_where_the_encoder_can_change_it():
    stages = {"first": parse({"encoder": {"dropout": 0.5}}, where="test"), "second": Config()}
    check_rules(stages)
    check_rules(stages, encoder=EncoderCapabilities(has_staged_dropout=True))
    with pytest.raises(ConfigError, match=r"encoder\.dropout = 0\.5 in the stage 'first' but not in the last"):
        check_rules(stages, encoder=EncoderCapabilities())


def test_a_refused_recipe_is_refused_when_it_is_read():
    with pytest.raises(ConfigError, match="nothing to score"):
        load("unidec", ["heads.dual=false", "heads.classifier=false"])


def test_the_table_has_a_row_per_rule_and_needs_no_torch():
    lines = rules_markdown().splitlines()
    assert len(lines) == 2 + len(RULES)
    assert all(line.count(" | ") == 3 for line in lines[2:])
    program = "import sys, unidex.config.rules as rules; print(rules.rules_markdown(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == rules_markdown() + " False\n"


def test_a_batch_of_labels_chooses_the_labels_of_a_step_as_a_tree_does():
    with pytest.raises(ConfigError, match=r"a batch of labels, chooses .* has pool.hard_negatives = 2"):
        check(Facts(parse({"pool": {"batches": "labels", "hard_negatives": 2}}, where="test")))


def test_a_decision_tree_needs_both_heads_in_the_last_stage_alone():
    """The first stage of NGAME has no classifier."""
    config = load("ngame", ["train.validation=0.1", "predict.rank=decision-tree"])
    first, *_, last = config.in_stages().values()
    assert not first.heads.classifier
    assert last.heads.classifier
