def guard(lo, op, pointer, point, addresses, mask):
    return mask
def guard_run(lo, op, pointer, point, address, mask):
    return mask
