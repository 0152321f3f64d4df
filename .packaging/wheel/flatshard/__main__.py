"""python -m flatshard PROGRAM ...: what flatshard-PROGRAM does, without a PATH that names it."""

import sys
from importlib.metadata import version

from flatshard import PROGRAMS, Launcher, Refused, main

USAGE = f"usage: python -m flatshard PROGRAM ..., where PROGRAM is one of: {', '.join(PROGRAMS)}; or --version"

if len(sys.argv) > 1 and sys.argv[1] in PROGRAMS:
    main(sys.argv[1], sys.argv[2:])
elif sys.argv[1:] == ["--version"]:
    print("Flatshard", version("flatshard"))
    try:
        print(Launcher().describe())
    except Refused as error:
        sys.exit(f"flatshard: {error}")
elif sys.argv[1:] in (["--help"], ["-h"]):
    print(USAGE)
else:
    sys.exit(USAGE)
