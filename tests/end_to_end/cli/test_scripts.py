"""Texts in any script and of any length: on the command line and by the service."""

import json

import pytest

from helpers.command import call
from helpers.served import served
from unidex.verbs.models import load_model
from unidex.verbs.predict import predict_rows
from unidex.verbs.train import train

# Labels and the words of their texts. The words of Chinese stand without blanks.
SUBJECTS = {
    "图书馆": ["图书馆的馆藏目录", "公共图书馆借书", "读者在图书馆看书"],
    "计算机网络": ["计算机网络的安全", "网络协议与计算机", "无线网络连接"],
    "مكتبات": ["فهرس المكتبة العامة", "استعارة الكتب من المكتبة", "القراء في المكتبات"],
    "شبكات": ["أمن شبكات الحاسوب", "بروتوكول الشبكة", "الاتصال بالشبكات"],
    "पुस्तकालय": ["सार्वजनिक पुस्तकालय की सूची", "पुस्तकालय से पुस्तक लेना", "पुस्तकालय के पाठक"],
    "संगणक": ["संगणक की सुरक्षा", "संगणक और जाल", "नया संगणक खरीदना"],
    "kirjastot": ["yleisen kirjaston luettelo", "kirjan lainaaminen kirjastosta", "lukijat kirjastoissa"],
    "tietoverkot": ["tietoverkkojen turvallisuus", "tietoverkon protokolla", "yhteys tietoverkkoon"],
}
# Texts with other words around the same subjects: other endings, other neighbours.
ASKED = {
    "城市里的新图书馆开放": "图书馆",
    "局域网络故障": "计算机网络",
    "زيارة المكتبة": "مكتبات",
    "हमारा पुस्तकालय": "पुस्तकालय",
    "uusien kirjastojen avaaminen": "kirjastot",
    "tietoverkoissa liikkuminen": "tietoverkot",
}
SETTINGS = ["encoder.dim=32", "features.min_df=1", "train.epochs=12", "train.batch_size=8", "train.validation=0"]
SETTINGS += ["augment.method=none", "pool.try_hard_negatives=0", "predict.index=exact", "predict.rank=sum"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("scripts") / "model"
    pairs = [(text, [label]) for label, texts in SUBJECTS.items() for text in texts]
    train(pairs, out=place, settings=SETTINGS, test_fraction=0)
    return place


def test_the_command_line_takes_any_script(folder, tmp_path):
    file = tmp_path / "frågor.txt"
    file.write_text("".join(f"{text}\n" for text in ASKED), encoding="utf-8")
    rows = [json.loads(line) for line in call("predict", folder, file, "-k", "1", "--json").stdout.splitlines()]
    found = rows[0] if len(rows) == 1 and isinstance(rows[0], list) else rows
    assert [row["labels"][0]["uid"] for row in found] == list(ASKED.values())
    explained = call("explain", folder, "城市里的新图书馆开放", "--json").stdout
    assert "图" in explained
    assert "\\u" not in explained


def test_the_service_takes_any_script(folder):
    with served(folder) as service:
        assert [row[0] for row in service.predict(list(ASKED), k=1)] == list(ASKED.values())
        found = service.client.get("/v1/labels", params={"search": "पुस्त"})
        assert found.status_code == 200
        assert "पुस्तकालय" in found.text


def test_long_texts_are_read_a_few_at_a_time(folder):
    """Memory for a megabyte of text is many megabytes, so that a block must not have a thousand such texts."""
    num_read = 0

    def texts():
        nonlocal num_read
        for _ in range(40):
            num_read += 1
            yield "uusien kirjastojen avaaminen " * 40_000

    first = next(predict_rows(load_model(folder), texts(), k=1))
    assert first["labels"][0]["uid"] == "kirjastot"
    assert num_read == 4
