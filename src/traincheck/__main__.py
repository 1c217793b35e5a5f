"""``python -m traincheck`` is the ``traincheck`` command."""

from traincheck.cli import main

if __name__ == "__main__":
    main()
