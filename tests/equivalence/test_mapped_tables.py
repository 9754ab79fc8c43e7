"""Row tables in memory-mapped files train like tables in memory."""

import pytest
import torch

from helpers.synthetic import QUICK, topics
from unidex.verbs.train import train


@pytest.mark.parametrize("settings", [[], ["heads.shared_encoder=false"]], ids=["one encoder", "two encoders"])
def test_tables_in_a_file_train_like_tables_in_memory(settings, tmp_path):
    inside, mapped = (
        train(topics(), "unidec", settings=[*QUICK, *settings, f"train.table_storage={where}"], out=tmp_path / where)
        for where in ("memory", "file")
    )
    tables = mapped.network.tables()
    assert tables.keys() == inside.network.tables().keys()
    for name, table in inside.network.tables().items():
        assert torch.equal(table.weight, tables[name].weight), name
