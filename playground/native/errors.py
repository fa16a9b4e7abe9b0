"""What native execution raises, apart from Triton's own compilation errors."""


class Unsupported(Exception):
    """The kernel uses something that has no meaning on a CPU.

    Raised while compiling, so before any program of the launch has run.
    """


class OutOfBounds(Exception):
    """A load or store outside its tensor, found in checked mode.

    Attributes: `tensor` (the kernel's argument), `index` (in elements from the
    tensor's first), `program` (x, y, z), `lane` (the element of the block, row
    by row), `file` and `line` of the source, `kind` ('load' or 'store').
    """

    def __init__(self, *, tensor, index, program, lane, file, line, kind, elements):
        self.tensor, self.index, self.program, self.lane = tensor, index, program, lane
        self.file, self.line, self.kind = file, line, kind
        super().__init__(
            f"{kind} outside {tensor}: element {index} of {elements}, program {program}, lane {lane}, {file}:{line}"
        )


class DeviceAssertError(AssertionError):
    """A `tl.device_assert` that did not hold."""
