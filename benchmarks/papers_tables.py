"""All tables and figures by name."""

from __future__ import annotations

from papers_dexml import DEXML
from papers_thesis import THESIS
from papers_unidec import UNIDEC

TABLES = {table.name: table for table in (*THESIS, *UNIDEC, *DEXML)}
