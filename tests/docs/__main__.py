"""``python -m tests.docs WHAT …``: pages made by commands, and the check of their sentences.

    api FILE                 the Python reference, from docstrings
    panels FILE              groups the options of the page of the command line as ``--help`` does
    errors FILE              provokes every error it lists and writes what was said
    figures README PAGE      copies figures of the page of benchmarks into the README's table
    terminal MODEL PAGE…     the terminal output that the pages show, by a run on this machine
    sentences                names pages of long sentences, docstrings without a subject or a verb, and empty names
"""

import sys
import tempfile
from pathlib import Path


def main(what: str, *places: str) -> None:
    """See the module."""
    if what == "api":
        from tests.docs.api import page

        Path(places[0]).write_text(page())
    elif what == "panels":
        from tests.docs.panels import with_panels

        Path(places[0]).write_text(with_panels(Path(places[0]).read_text()))
    elif what == "figures":
        from tests.docs.figures import with_figures

        readme, page_of_figures = Path(places[0]), Path(places[1])
        readme.write_text(with_figures(readme.read_text(), page_of_figures.read_text()))
    elif what == "errors":
        from tests.docs.errors import page as page_of_errors

        with tempfile.TemporaryDirectory() as folder:
            Path(places[0]).write_text(page_of_errors(Path(folder)))
    elif what == "terminal":
        from tests.docs.terminal import rewrite

        rewrite(Path(places[0]), list(map(Path, places[1:])))
    elif what == "sentences":
        from tests.docs.sentences import check

        sys.exit(check())
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
