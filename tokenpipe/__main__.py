"""Run the command line."""

from tokenpipe.cli import main

raise SystemExit(main())
