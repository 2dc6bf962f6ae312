"""``python -m radix_rs.cli``."""

from radix_rs.cli import app

app()
