"""From a CSV file to predictions: write a small table, train on it, predict, add a label.

Run: python examples/from_csv.py
"""

import csv
import tempfile
from pathlib import Path

import unidex

TICKETS = [
    ("The printer on floor two does not print", "printing"),
    ("Paper jam in the big printer again", "printing"),
    ("Toner is empty, please bring a new cartridge", "printing|supplies"),
    ("I forgot my password and cannot log in", "accounts"),
    ("Log in fails after the password change", "accounts"),
    ("Please reset the password of my mail account", "accounts|mail"),
    ("Mail from customers arrives hours late", "mail"),
    ("My mail box is full and rejects mail", "mail"),
    ("We need more paper and pens", "supplies"),
    ("Order twenty new cartridges and paper", "supplies"),
] * 4


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "tickets.csv"
        with table.open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            writer.writerow(["text", "labels"])
            writer.writerows(TICKETS)
        settings = ["features.min_df=1", "train.validation=0", "train.batch_size=16", "train.epochs=15"]
        model = unidex.train(table, settings=settings, out=Path(folder) / "model")
        show(model, "the printer has no toner")
        model.add_labels(["wireless network"])
        show(model, "no wireless network today")


def show(model: unidex.Model, text: str) -> None:
    (labels,) = model.predict([text], k=2)
    print(f"{text} -> {', '.join(label.text for label in labels)}")


if __name__ == "__main__":
    main()
