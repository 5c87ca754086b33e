"""`python -m swarm` is `enginesmith`."""

import sys

from swarm.cli import main

sys.exit(main())
