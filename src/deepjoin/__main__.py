"""`python -m deepjoin` is the command line."""

import sys

from deepjoin.cli import main

if __name__ == "__main__":
    sys.exit(main())
