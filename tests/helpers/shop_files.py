"""One small data set as the files of every format, and a function that writes them."""

import gzip

import numpy as np
from scipy import sparse


def put(folder, files):
    """Write files from name -> text, bytes or matrix."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str | bytes):
            content = content.encode() if isinstance(content, str) else content
            file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        else:
            sparse.save_npz(file, sparse.csr_matrix(content))
    return folder


TRAIN = (
    '{"uid": "A1", "title": "red shoe", "content": "of leather", "target_ind": [2, 0], "target_rel": [0.5, 1.0]}\n'
    '{"uid": "A2", "title": "hat", "content": "", "target_ind": [1], "target_rel": [1.0]}\n'
    '{"uid": "A3", "title": "", "content": "thing", "target_ind": [], "target_rel": []}\n'
)
TEST = '{"uid": "B1", "title": "cap", "content": "", "target_ind": [1], "target_rel": [1.0]}\n'
LABELS = '{"uid": "s", "title": "shoes"}\n{"uid": "h", "title": "hats"}\n{"uid": "r", "title": "red things"}\n'
RELEVANCE = np.array([[1.0, 0, 0.5], [0, 1, 0], [0, 0, 0]])
SHOP_TRAIN = [("red shoe of leather", {0: 1.0, 2: 0.5}), ("hat", {1: 1.0}), ("thing", {})]
SHOP_TEST = [("cap", {1: 1.0})]
TEXTS = "red shoe of leather\nhat\nthing\n"
LABEL_LINES = "shoes\nhats\nred things\n"
FILTER = "0 1\n2 2\n"

RAW = {"trn.json": TRAIN, "tst.json": TEST, "lbl.json": LABELS, "filter_labels_train.txt": FILTER}
SHOPS = {
    "xc-raw": [
        RAW,
        {"trn.json.gz": TRAIN, "tst.json.gz": TEST, "lbl.json.gz": LABELS, "filter_labels_train.txt": FILTER},
        {"train.json": TRAIN, "test.json.gz": TEST, "labels.json": LABELS, "filter_labels_train.txt": FILTER},
        {
            "trn.raw.json.gz": "\ufeff" + TRAIN.replace("\n", "\r\n"),
            "tst.raw.json.gz": TEST.rstrip("\n"),
            "Yf.txt": "12->shoes\n7->hats\n3->things->red things\n",
            "filter_labels_train.txt": FILTER,
        },
    ],
    "xclib": [
        {
            "trn_X.txt": TEXTS,
            "tst_X.txt": "cap\n",
            "Y.txt": LABEL_LINES,
            "trn_X_Y.txt": "3 3\n2:0.5 0:1\n1:1.0\n\n",
            "tst_X_Y.txt": "1 3\n1:1\n",
            "filter_labels_train.txt": FILTER,
        },
        {
            "raw_data/trn_X.txt": TEXTS.replace("\n", "\r\n"),
            "raw_data/tst_X.txt": "cap",
            "raw_data/Y.txt": LABEL_LINES,
            "trn_X_Y.npz": RELEVANCE,
            "tst_X_Y.npz": [[0, 1, 0]],
            "trn_filter_labels.txt": FILTER,
        },
    ],
    "pecos": [
        {
            "X.trn.txt": TEXTS,
            "X.tst.txt": "cap\n",
            "output-items.txt": LABEL_LINES,
            "Y.trn.npz": RELEVANCE,
            "Y.tst.npz": [[0, 1, 0]],
            "filter_labels_train.txt": FILTER,
        }
    ],
    "dexml": [
        {
            "raw/trn_X.txt": TEXTS,
            "raw/tst_X.txt": "cap\n",
            "raw/Y.txt": LABEL_LINES,
            "Y.trn.npz": RELEVANCE,
            "Y.tst.npz": [[0, 1, 0]],
            "filter_labels_train.txt": FILTER,
        }
    ],
}
BAG = {"train.txt": "3 4 3\n0,2 0:0.5 3:1\n1 1:2\n 2:1\n", "test.txt": "1 4 3\n1 0:1\n"}
