"""The command `recollect`, also as `python -m recollect`.

While its libraries load, Ctrl-C ends the process as the kernel does, without a trace: `main` is not
there yet to answer it.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from recollect.cli import main

if __name__ == "__main__":
    main()
