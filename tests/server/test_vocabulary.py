"""The service with labels of a vocabulary: languages, notations, rules, labels that are added with several texts."""

import pytest

from helpers.served import AUTHORISED, TOKEN, served, token_file
from helpers.synthetic import QUICK, topics
from unidex.data.concepts import Concept, Term
from unidex.data.dataset import Dataset, Labels
from unidex.verbs.train import train

PLAIN = topics(num_labels=24, num_train=100, num_test=5)
CONCEPTS = {
    3: Concept(
        language="en",
        texts=(Term("Apparatur", "de", "preferred"),),
        notation="X.3",
        broader=("L2",),
        groups=("k#things",),
    )
}
TEXT = f"{PLAIN.labels.texts[3]} {PLAIN.labels.texts[2]}"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    labels = Labels(PLAIN.labels.texts, PLAIN.labels.uids, CONCEPTS)
    train(Dataset("terms", labels, PLAIN.train), "unidec", settings=[*QUICK, "train.epochs=2"], out=folder)
    with served(folder, "--token-file", token_file(folder.parent, TOKEN)) as found:
        yield found


def predicted(service, status=200, **asked):
    answer = service.client.post("/v1/predict", json={"text": TEXT, **asked})
    assert answer.status_code == status, answer.text
    return answer.json()["predictions"][0]["labels"] if status == 200 else answer.json()


def test_predictions_have_notation_and_the_text_in_the_language_asked_for(service):
    found = {label["uid"]: label for label in predicted(service, k=24, language="de")}
    assert found["L3"]["text"] == "Apparatur"
    assert found["L3"]["notation"] == "X.3"
    assert "notation" not in found["L2"]
    assert {label["uid"]: label for label in predicted(service, k=24)}["L3"]["text"] == PLAIN.labels.texts[3]
    refused = predicted(service, 422, language="fi")
    assert refused["field"] == "language"
    assert "there is 'de', 'en'" in refused["detail"]
    assert service.client.get("/v1/model").json()["languages"] == ["de", "en"]
    label = service.client.get("/v1/labels/3", params={"language": "de"}).json()
    assert (label["text"], label["broader"], label["groups"]) == ("Apparatur", ["L2"], ["k#things"])
    found = service.client.get("/v1/labels", params={"search": "appara", "language": "de"}).json()["labels"]
    assert [label["text"] for label in found] == ["Apparatur"]


def test_requests_choose_labels_by_rules_and_drop_broader_ones(service):
    assert [label["uid"] for label in predicted(service, allowed=["group=things"])] == ["L3"]
    shown = [label["uid"] for label in predicted(service, k=24, allowed=["uid=L2", "L3"])]
    assert sorted(shown) == ["L2", "L3"]
    assert [label["uid"] for label in predicted(service, allowed=["L2", "L3"], most_specific=True)] == ["L3"]
    refused = predicted(service, 422, forbidden=["group=none"])
    assert refused["field"] == "forbidden"
    table = f"text\n{TEXT}\n".encode()
    asked = {"k": 24, "language": "de"}
    answer = service.client.post("/v1/predict/table", params=asked, content=table)
    assert "notation_1" in answer.text
    assert "Apparatur" in answer.text


def test_a_label_is_added_with_further_texts(service):
    new = {
        "text": "frobnicator",
        "uid": "n",
        "texts": ["blue frob", {"text": "Frobnikator", "language": "de"}],
        "notation": "N",
    }
    answer = service.client.post("/v1/labels", json={"labels": [new]}, headers=AUTHORISED)
    assert answer.status_code == 201, answer.text
    (label,) = answer.json()["labels"]
    assert label["texts"] == [{"text": "blue frob"}, {"text": "Frobnikator", "language": "de"}]
    assert service.predict(["Frobnikator"], k=1) == [["n"]]
    blank = service.client.post("/v1/labels", json={"labels": [{"text": "x", "texts": [" "]}]}, headers=AUTHORISED)
    assert blank.status_code == 422
    assert "texts must have more than spaces" in blank.json()["detail"]
