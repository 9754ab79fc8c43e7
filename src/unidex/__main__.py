"""``python -m unidex`` is ``unidex``."""

from unidex.cli.main import main

main()
