# Read by any Python 3; its only words on standard error are what is wrong, with the remedy.
import sys

REMEDY = " -- name a python that has it as kvgate_agent_python in the inventory"

load = sys.argv[1] == "load"
oldest = (3, 11) if load else (3, 10)
if sys.version_info < oldest:
    wanted = ".".join(str(n) for n in oldest)
    sys.exit(sys.executable + " is older than Python " + wanted + REMEDY)
if load:
    try:
        import msgspec
    except ImportError:
        sys.exit(sys.executable + " has no msgspec, a load client needs it" + REMEDY)
    print(msgspec.__version__)
