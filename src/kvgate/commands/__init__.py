"""The commands of ``kvgate``, one module per group. They read, call and print; they never judge.

Heavy modules are imported inside the commands, so that ``kvgate --help`` answers at once.
"""
