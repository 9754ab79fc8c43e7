"""The names of the export formats; light, so that the command line can list them without torch."""

from __future__ import annotations

# Format -> its module, which has a ``FORMAT``, and what it is for. Modules are imported on demand.
FORMATS = {
    "parquet": ("unidex.export.label_table", "a table of label vectors for any vector database"),
    "milvus": ("unidex.export.milvus_collection", "a model folder whose label vectors are in Milvus"),
    "pgvector": ("unidex.export.postgres_table", "a model folder whose label vectors are in PostgreSQL"),
}
