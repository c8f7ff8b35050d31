"""``python -m dglcell``."""

import sys

from dglcell.cli import main

sys.exit(main())
