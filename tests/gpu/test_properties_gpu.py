"""Any shape and stride on a real GPU, in every dtype of every spec: more of tests/kernels/test_properties.py."""

import pytest

from tests.kernels import conformance
from tests.kernels.conformance import each_dtype
from tests.kernels.test_properties import right_or_refused

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("spec, dtype", each_dtype())
def test_right_or_refused(spec, dtype):
    conformance.need_device(spec, dtype)
    right_or_refused(spec, 20, dtype)
