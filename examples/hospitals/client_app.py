"""What every site runs."""

from task import EXPERIMENT, load

from fedparity.flower import make_client_app

app = make_client_app(EXPERIMENT, load)
