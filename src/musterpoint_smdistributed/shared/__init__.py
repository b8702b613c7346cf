"""What the packages use: the variables of every launcher, the job's parameters, a process group for CPUs and GPUs.

A package of its own, since either of the two may be AWS's.
"""

if __name__ != "smdistributed.shared":
    raise ImportError("import it as smdistributed.shared, after `import musterpoint_smdistributed`: it is one package")
