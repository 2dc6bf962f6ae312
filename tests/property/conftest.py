"""Hypothesis profiles of the property tests.

``ci`` (the default) is fast and repeats itself exactly; ``long`` searches at random for as long as
it takes. Choose with ``RADIX_RS_HYPOTHESIS_PROFILE=long``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# The reference and the machines are plain files next to the tests, whatever the import mode.
sys.path.insert(0, str(Path(__file__).parent))

SUPPRESSED = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
]

settings.register_profile(
    "ci",
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    print_blob=False,
    suppress_health_check=SUPPRESSED,
)
settings.register_profile(
    "long",
    max_examples=3000,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=SUPPRESSED,
)
settings.load_profile(os.environ.get("RADIX_RS_HYPOTHESIS_PROFILE", "ci"))
