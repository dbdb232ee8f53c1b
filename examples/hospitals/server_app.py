"""What the coordinator runs: it holds no data."""

from task import EXPERIMENT

from fedparity.flower import make_server_app

app = make_server_app(EXPERIMENT)
