"""`python -m multimdm`, and `torchrun -m multimdm` for several ranks."""

import sys

from multimdm.cli.main import main

sys.exit(main())
