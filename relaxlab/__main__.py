"""Run the command line as a module, where the ``relaxlab`` script is not on the path.

Examples
--------
``python -m relaxlab doctor``
"""

import sys

from relaxlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
