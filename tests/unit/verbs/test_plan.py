"""The plan of a training: known sizes, remedies that fit, and the refusal of a run that does not."""

import json
from dataclasses import replace

import pytest

from helpers.command import call
from helpers.synthetic import topics
from unidex.config.recipes import load
from unidex.data.formats import native
from unidex.errors import UnidexError
from unidex.training.requirements import requirements
from unidex.training.run_sizes import Sizes, sample_of
from unidex.training.smaller_runs import smaller_settings
from unidex.training.speed import Speed, seconds_by_phase
from unidex.training.timetable import FIT, INDEX, TEST, TRAIN, TRIAL
from unidex.verbs import plan as planned
from unidex.verbs.plan import check_fits, plan
from unidex.verbs.train import train

DATA = topics()
MILLION = Sizes(10**6, 1000, 10**6, 10**6, 50.0, 30.0, 500_000, 80.0, 40.0, is_mapped=True)


def test_known_sizes_of_a_million_labels():
    needs = requirements(load("auto", []), MILLION, base=0)
    tables = 4 * 128 * (2 * 500_000 + 10**6)
    assert needs[TRAIN].memory["row tables"] == tables
    # Adagrad has one number per row; a copy of a large network is in a file.
    assert needs[TRAIN].memory["optimiser state"] == 4 * 2_000_000
    assert "copy of the best network" not in needs[TRAIN].memory
    assert needs[TRAIN].disk["checkpoints"] == 3 * tables + 2 * 4 * 2_000_000
    assert needs[INDEX].memory["index (pq)"] == 10**6 * (4 * 257 + 8) + 10**6 * 257 // 8
    assert TRIAL not in needs


def test_both_trials_stay_on_the_disk_until_the_model_is_saved():
    sizes = Sizes(10_000, 1000, 10_000, 30_000, 50.0, 30.0, 50_000, 80.0, 40.0)
    needs = requirements(load("auto", []), sizes, base=0)
    encoder = 4 * 128 * 50_000
    tables = 2 * encoder + 4 * 128 * 10_000
    # The last checkpoint and the best network of each, and the network that both began with.
    finished = 2 * tables + 4 * 110_000
    assert needs[TEST].disk["checkpoints"] == finished
    assert needs[TRIAL].disk["first trial"] == needs[TEST].disk["first trial"] == finished + encoder
    assert needs[TEST].disk["model folder"] < 2 * encoder


def test_settings_change_what_they_should():
    def memory(phase, *settings, processes=1):
        needs = requirements(load("auto", list(settings)), MILLION, base=0, processes=processes)
        return needs[phase].memory

    in_file = memory(TRAIN, "train.table_storage=file", "train.row_optimiser=adam")
    assert "row tables" not in in_file
    # One number per row stays in memory.
    assert in_file["optimiser state"] == 4 * 2_000_000
    assert memory(TRAIN, "encoder.dim=64")["row tables"] * 2 == memory(TRAIN)["row tables"]
    adam = memory(TRAIN, "train.row_optimiser=adam")["optimiser state"]
    assert adam == 2 * memory(TRAIN)["row tables"] + memory(TRAIN)["optimiser state"]
    half = memory(TRAIN, "train.row_optimiser=adam", "train.classifier_numbers=float16")
    assert half["row tables"] == 128 * (4 * 2 * 500_000 + 2 * 10**6)
    assert half["optimiser state"] == adam
    assert memory(TRAIN, processes=4)["row tables"] == 4 * 128 * (2 * 500_000 + 250_000)
    assert memory(TEST, "predict.index=disk")["index (disk)"] < memory(TEST)["index (pq)"] / 2
    assert "words of labels" not in memory(FIT, "predict.rank=sum")


def test_words_of_very_many_labels_are_in_files():
    config = load("auto", [])
    few, many = (
        requirements(config, Sizes(10**6, 1000, labels, 10**6, 50.0, 30.0, 500_000, 80.0, 40.0, is_mapped=True), base=0)
        for labels in (200_000, 2_000_000)
    )
    assert few[FIT].memory["words of labels"] == round(1.5 * 8 * 1.1 * 30 * 200_000)
    assert "words of labels" not in few[FIT].disk
    assert "words of labels" in few[TEST].memory
    assert many[FIT].memory["words of labels"] == (165 + 4) * 2_000_000
    assert "words of labels" not in many[TEST].memory
    assert many[FIT].disk["words of labels"] == 2_000_000 * (2 * 30 + 24)


def test_an_index_on_disk_is_there_once_and_a_short_run_has_no_checkpoint():
    settings = ["predict.index=disk", "train.validation=0", "train.decay_epochs=0", "train.epochs=1"]
    short, long = (
        requirements(load("auto", [*settings, f"train.checkpoint_every={every}"]), MILLION, base=0)
        for every in (10_000, 100)
    )
    lists = 10**6 * (257 // 4 + 8)
    assert short[INDEX].disk["index"] == 4 * 257 * 10**6 + lists + 10**6 * (4 + 257 // 4)
    assert short[TEST].disk["index"] == 4 * 257 * 10**6 + lists
    assert "checkpoints" not in short[TRAIN].disk
    assert long[TEST].disk["checkpoints"] > 0


def test_held_out_texts_search_very_many_labels_by_an_index_on_disk():
    config = load("auto", [])
    need = requirements(config, MILLION, 0)[FIT]
    dim = 2 * config.encoder.dim + 1
    assert need.disk["index of labels"] == MILLION.num_labels * (4 * dim + dim // 4 + 8 + 4 + dim // 4)
    assert need.memory["index of labels"] == 4 * dim * 4096 * 40
    assert "index of labels" not in requirements(config, MILLION, 0, processes=2)[FIT].disk
    few = replace(MILLION, num_labels=200_000)
    assert "index of labels" not in requirements(config, few, 0)[FIT].disk


def test_a_sample_is_a_data_set_of_its_own():
    sample = sample_of(DATA)
    assert sample.train.positives.shape == (len(DATA.train), DATA.num_labels)
    assert (sample.train.positives != DATA.train.positives).nnz == 0


def test_features_are_counted_or_extrapolated():
    config = load("auto", ["features.min_df=1", "features.chars=false", "features.num_buckets=0"])
    found = Sizes.of(DATA, config)
    assert found.num_features <= Sizes.upper_bound(DATA, config).num_features
    from unidex.features.extractor import FeatureExtractor

    assert found.num_features == len(
        FeatureExtractor.fit(DATA.train.texts, DATA.labels.texts, config.features).vocabulary
    )
    larger = found.scaled(2 * DATA.num_labels, 2 * len(DATA.train)).with_features(sample_of(DATA), config)
    assert found.num_features <= larger.num_features <= 2 * found.num_features
    assert larger.num_pairs == 2 * found.num_pairs


def test_time_is_measured_for_every_phase():
    found = plan(DATA, settings=["encoder.dim=16"])
    assert set(found.seconds) == set(found.phases)
    assert all(seconds > 0 for seconds in found.seconds.values())
    # The start of the program is no phase.
    assert found.cpu_seconds is not None
    assert sum(found.seconds.values()) + 1 < found.cpu_seconds < sum(found.seconds.values()) + 5
    assert found.fits
    assert not found.remedy


def test_linear_classifiers_take_time_twice_where_a_set_may_have_them():
    """For held-out texts and for the model; a set with too many features of texts has none."""
    speed = Speed(1e-7, 0.05, 512, 1e-5, 1e-5, 1e-5, 1e-11, 1.0)

    def seconds(sizes: Sizes, *settings: str, processes: int = 1) -> dict[str, float]:
        return seconds_by_phase(load("auto", settings).in_stages(), sizes, speed, processes)

    sizes = Sizes(20_000, 1_000, 10_000, 80_000, 100, 30, 100_000, 100.0, 30.0, 200_000)
    added = {name: value - seconds(sizes, "predict.linear=false")[name] for name, value in seconds(sizes).items()}
    assert added[FIT] > 0.5
    assert added[INDEX] == pytest.approx(added[FIT], rel=0.01)
    assert all(value == 0 for name, value in added.items() if name not in (FIT, INDEX))
    without, needs = (requirements(load("auto", some), sizes, base=0) for some in (["predict.linear=false"], []))
    taken = {name: needs[name].total_memory - without[name].total_memory for name in needs}
    assert {name: number for name, number in taken.items() if number} == dict.fromkeys([FIT, INDEX], 32_000_000)
    for other, options in ((replace(sizes, text_entries=20_000.0), {}), (sizes, {"processes": 2})):
        assert seconds(other, **options) == seconds(other, "predict.linear=false", **options)


@pytest.fixture
def with_memory(monkeypatch):
    def set_memory(megabytes):
        monkeypatch.setattr(planned, "available_memory", lambda: megabytes << 20)
        monkeypatch.setattr(planned, "process_memory", lambda: 0)

    return set_memory


def test_the_remedy_is_a_setting_with_which_it_fits(with_memory):
    with_memory(2200)
    found = planned._plan(load("auto", []), MILLION, {}, 1, planned.Path())
    assert not found.fits
    assert found.remedy
    assert planned._plan(load("auto", list(found.remedy)), MILLION, {}, 1, planned.Path()).fits


@pytest.mark.parametrize("megabytes", [450, 900, 1300, 2200, 3000])
def test_no_setting_of_the_remedy_is_needless(megabytes, with_memory):
    """Also where linear classifiers take nothing, because texts have too many features."""
    with_memory(megabytes)
    for sizes in (MILLION, replace(MILLION, text_entries=300.0)):
        found = planned._plan(load("auto", []), sizes, {}, 1, planned.Path())
        assert found.remedy or megabytes == 450
        for setting in found.remedy:
            fewer = [other for other in found.remedy if other != setting]
            assert not planned._plan(load("auto", fewer), sizes, {}, 1, planned.Path()).fits, (setting, found.remedy)


def test_a_run_that_cannot_fit_is_refused_before_it_starts_and_force_overrides(with_memory, tmp_path):
    with_memory(100)
    with pytest.raises(UnidexError, match=r"must fit into memory, but .* needs .* are available; .*--force"):
        train(DATA, settings=["encoder.dim=8", "train.epochs=1"], out=tmp_path / "model")
    assert not list(tmp_path.iterdir())
    assert train(DATA, settings=["encoder.dim=8", "train.epochs=1", "train.validation=0"], force=True)


def test_a_full_disk_is_refused(monkeypatch):
    monkeypatch.setattr(planned, "free_disk", lambda folder: 1 << 20)
    with pytest.raises(
        UnidexError, match=r"needs .* and 1 MB are free; free space on the disk, or use fewer texts or labels"
    ):
        check_fits(DATA, load("auto", []), planned.Path(), 1)


def test_every_change_makes_a_run_smaller():
    assert {"predict.linear=false", "train.classifier_numbers=float16"} <= dict(
        smaller_settings(load("auto", []))
    ).keys()
    config = load("auto", ["predict.linear=false"])
    before, with_linear = (
        max(need.total_memory for need in requirements(some, MILLION, 0).values())
        for some in (config, load("auto", []))
    )
    assert before < with_linear
    for name, change in smaller_settings(config):
        after = max(need.total_memory for need in requirements(change(config), MILLION, 0).values())
        assert after < before or name == "predict.rank=sum", name


def test_the_command_prints_json_and_takes_a_number_of_labels(tmp_path):
    native.write(DATA, tmp_path)
    done = call("plan", str(tmp_path), "--labels", "5000000", "--texts", "1000000", "--no-time", "--json")
    found = json.loads(done.stdout)
    assert found["sizes"]["num_labels"] == 5_000_000
    assert found["peak_memory"] == max(sum(phase["memory"].values()) for phase in found["phases"].values())
    assert found["cpu_seconds"] is None


@pytest.mark.parametrize("number", ["0", "-3"])
def test_a_number_of_labels_below_one_is_refused_as_such(tmp_path, number):
    native.write(DATA, tmp_path)
    with pytest.raises(UnidexError, match=f"--labels must be at least 1, but is {number}"):
        call("plan", str(tmp_path), f"--labels={number}", "--no-time")
