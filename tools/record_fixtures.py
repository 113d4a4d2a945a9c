"""Makes the fixtures of ``tests/data/records`` from the folder of a real run.

    python tools/record_fixtures.py RUN

Each record is read, the places of this machine are replaced by neutral ones, and it is written again as freehold writes
it. A fixture of a released version is never touched. Hashes inside the records stay those of the run.

Does not do: deciding what is released (``tools/generate_docs.py --lock``).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from generate_docs import REPOSITORY, record_types, schema_file_name

from freehold import __version__
from freehold.records.base import decode, encode

FIXTURES = REPOSITORY / "tests" / "data" / "records"
PLACES = re.compile(r"(?<![\w:/.])(?:/[\w.@+-]+)+/(?=[\w.@+-])")
README = """\
# One record per released schema

`<name>-<version>.json` is a record of schema `freehold.<name>/<version>`, as freehold wrote it. A test reads them all,
so that a record somebody saved stays readable by every later version. `released.toml` holds the form of each schema; a
released one never changes.

| files | origin | date | licence |
| --- | --- | --- | --- |
| `cluster_plan-1.json` | `freehold {cluster_plan}` {version} | {date} | Apache-2.0, as the repository |
| all others | `freehold up` {version} on a machine with two cores, then `python tools/record_fixtures.py RUN`: it \
replaces the folders of that machine by `/srv/` | {date} | Apache-2.0, as the repository |
"""
CLUSTER_PLAN = (
    "plan --model smollm2-135m --hardware dgx-spark:2 --nodes 1..2 --context 1024 --tokens-per-month 1000000 --json"
)
"""No stage of a run plans for other hardware, so this record is made by a command of its own."""


def neutral(text: str) -> str:
    """The text with every absolute folder replaced; what stands in it keeps its name."""
    return PLACES.sub("/srv/", text)


def main() -> int:
    """Write the fixtures."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    released = set(re.findall(r"^## \[(\d\S*)\]", (REPOSITORY / "CHANGELOG.md").read_text(), flags=re.MULTILINE))
    since = {schema: row["since"] for schema, row in tomllib.loads((FIXTURES / "released.toml").read_text()).items()}
    found = {}
    for path in sorted(Path(sys.argv[1]).glob("*.json")):
        found[json.loads(path.read_bytes()).get("schema")] = path.read_bytes()
    start = "import sys; from freehold.cli.main import main; sys.exit(main(sys.argv[1:]))"
    plan = subprocess.run([sys.executable, "-c", start, *CLUSTER_PLAN.split()], check=True, stdout=subprocess.PIPE)
    found["freehold.cluster_plan/1"] = plan.stdout
    missing = []
    for schema, record_type in record_types().items():
        if since.get(schema) in released:
            continue
        if schema not in found:
            missing.append(schema)
            continue
        record = decode(record_type, neutral(found[schema].decode()).encode(), name=schema)
        (FIXTURES / schema_file_name(schema)).write_bytes(encode(record))
    (FIXTURES / "README.md").write_text(
        README.format(version=__version__, cluster_plan=CLUSTER_PLAN, date=datetime.now(UTC).date())
    )
    if missing:
        print(f"error: the run has no record of {', '.join(missing)}", file=sys.stderr)
        print("  why: some stage of it did not run", file=sys.stderr)
        print("  try: name the folder of a whole run", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
