"""`python -P -m agents`: a node agent, controlled over standard input and output."""

import sys

from agents.agent.main import main

if __name__ == "__main__":
    sys.exit(main())
