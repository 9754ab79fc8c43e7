"""One run in its own process: ``python -m unidex.verbs.comparison.worker ASKED.json``.

Its time and its memory are its own, and a crash of it ends no other run. Standard input is a pipe from the process that
compares: when that is closed, because the other has ended however it ended, the run stops with a checkpoint.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from unidex.config import parse
from unidex.data.dataset import Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.errors import UnidexError
from unidex.storage.locks import locked
from unidex.verbs.comparison import records
from unidex.verbs.comparison.usage import noted_usage, usage_so_far


def run(file: Path) -> None:
    """Train, score and measure the run of a plan file; resume an interrupted one."""
    asked = json.loads(file.read_text(encoding="utf-8"))
    folder, used = Path(asked["folder"]), file.with_name(f"{asked['name']}.used.json")
    # A process whose parent was killed may still finish its last step.
    with locked(file.with_name(asked["name"])):
        record = _measured(asked, folder, used)
        records.write_record(folder, record)
        used.unlink(missing_ok=True)


def _measured(asked: dict[str, Any], folder: Path, used: Path) -> dict[str, Any]:
    import torch

    from unidex.verbs.comparison.mistakes import find_mistakes
    from unidex.verbs.evaluate import evaluate
    from unidex.verbs.models import choose_device, load_model
    from unidex.verbs.train import train

    given: dict[str, Any] = asked["reading"]
    paths = {key: Path(given[key]) for key in ("test", "labels") if given[key] is not None}
    reading = ReadOptions(**(given | paths))
    dataset = read(asked["data"], reading)
    found = records.data_record(dataset)
    if found["fingerprint"] != asked["fingerprint"]:
        raise UnidexError(f"{asked['data']}: the data set must not change during a comparison, but it did")
    device = asked["device"]
    if folder.exists():
        model = load_model(folder, device)
    else:
        with noted_usage(used):
            # Without the test texts: their scoring is measured below, apart from the training.
            model = train(
                dataset.with_test(Split.empty(dataset.num_labels)),
                asked["recipe"],
                out=folder,
                settings=asked["settings"],
                seed=asked["seed"],
                device=device,
                resume=True,
            )
    started, cpu_started = time.monotonic(), time.process_time()
    scores = evaluate(model, dataset, with_train_texts=True).as_dict()
    prediction = {
        "wall_seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu_started, 3),
        "num_texts": len(dataset.test),
    }
    mistakes = find_mistakes(model, dataset)
    model.metrics["test"] = scores
    model.save(folder)
    how = {key: model.metrics.get("training", {}).get(key) for key in ("epochs", "steps")}
    where = choose_device(device)
    machine = {"system": platform.system(), "processor": platform.machine(), "num_cores": os.cpu_count()}
    if where.type == "cuda":
        machine |= {"gpu": torch.cuda.get_device_name(where)}
        how |= {"peak_gpu_memory_bytes": torch.cuda.max_memory_allocated(where)}
    return {
        "name": asked["name"],
        "recipe": asked["system"],
        "about": parse(asked["config"], where=str(asked["recipe"])).about,
        "augment": asked["config"]["augment"]["method"],
        "seed": asked["seed"],
        "settings": asked["settings"],
        "command": asked["command"],
        "config": asked["config"],
        "data": found,
        "test": scores,
        "mistakes": mistakes,
        "training": usage_so_far(used) | how,
        "prediction": prediction,
        "num_parameters": records.num_parameters(folder),
        "model_bytes": records.model_bytes(folder),
        "versions": records.versions(),
        "machine": machine | {"device": str(where), "num_threads": torch.get_num_threads()},
    }


def _stop_when_left_alone() -> None:
    def wait() -> None:
        # Not sys.stdin: Python cannot exit while a thread waits inside its buffer.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Run and exit with a code; the last line on standard error is the error."""
    _stop_when_left_alone()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("unidex").setLevel(logging.INFO)
    try:
        run(Path(sys.argv[1]))
    except UnidexError as error:
        sys.stderr.write(f"unidex: {' '.join(str(error).split())}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
