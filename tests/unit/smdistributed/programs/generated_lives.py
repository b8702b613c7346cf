"""What becomes of parameters while a model is trained: the same in parts and in one process, at the same moments.

A moment is a call of the step function, two a step; those below 0 come before the model is wrapped.
"""

OLD = {"thaws": [], "adds": False, "zeroes": False}
"""What specs don't say that were drawn before it was."""
WRAPPING = -1


def moments_before(spec, step):
    """The moments of the steps before one."""
    return [2 * each + part for each in range(step) for part in range(spec["accumulates"])]


def switch(spec, moment, net):
    """Changes who is to be trained; whether anything was changed."""
    chosen = [(start, trains) for at, start, trains in spec["thaws"] if at == moment]
    for start, trains in chosen:
        for name, each in net.named_parameters():
            if name.startswith(start):
                each.requires_grad_(trains)
    return bool(chosen)


def wanted(spec, parameters):
    """Those that an optimizer is made with."""
    return [each for each in parameters if each.requires_grad or not spec["adds"]]


def add(net, optimizer):
    """Gives an optimizer a group of what it doesn't have of the trained parameters."""
    known = {id(each) for group in optimizer.param_groups for each in group["params"]}
    new = [each for each in net.parameters() if each.requires_grad and id(each) not in known]
    if new:
        optimizer.add_param_group({"params": new, "lr": 0.03})


def reach(spec, moment, model, optimizer, alone):
    """Brings about what comes before a moment's call."""
    for nets, its in (([model.module], optimizer), (alone.replicas, alone.optimizer)):
        changed = [switch(spec, moment, net) for net in nets]
        if spec["adds"] and any(changed):
            add(nets[0], its)
