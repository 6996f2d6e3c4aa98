"""Specialisation of `forward` with its concrete module and examples to a residual program.

Words of the docstrings here:

host              the Python code of the residual program: its control flow, and all that is no
                  tensor operation
region            a run of tensor operations between two steps of the host, compiled as one part
step              a statement, branch or loop of the residual program, appended to
                  `Specialisation.steps`
static            known while specialising, whatever the input
example           the call whose values are followed; also the value that something has in it
second world      the same call with other sizes where sizes are open: what differs there from the
                  example depends on a size
to follow         to specialise the statements of a function, loop or branch, instead of running it
stand-in          an uninitialised instance that stands for an object or dictionary that `forward`
                  makes
place             an attribute or item of such an object, or an attribute of a module; it has a name
                  of its own in `Specialisation.names`
pending           evaluated, but not yet used by the expression around
Unsplittable      the error for what is not supported; it ends the split, with file, line and reason
"""
