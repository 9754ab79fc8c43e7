"""The names of the export formats; light, so that the command line can list them without torch."""

from __future__ import annotations

# Format -> its module, which has a ``FORMAT``, and what it is for. Modules are imported on demand.
FORMATS = {
    "sentence-transformers": ("unidex.export.sentence_folder", "one head as a folder of sentence-transformers"),
    "onnx": ("unidex.export.onnx_model", "encoder, heads and search of all labels as one graph"),
    "huggingface": ("unidex.export.hub_folder", "the model folder with a model card for the Hugging Face hub"),
    "parquet": ("unidex.export.label_table", "a table of label vectors for any vector database"),
    "milvus": ("unidex.export.milvus_collection", "a model folder whose label vectors are in Milvus"),
    "pgvector": ("unidex.export.postgres_table", "a model folder whose label vectors are in PostgreSQL"),
}
