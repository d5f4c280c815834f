"""A handler that takes 20 s to import, as TVM may on a busy machine."""

import time

from autotune.host.fork_server import Handler

time.sleep(20)


class SlowHandler(Handler):
    def __init__(self, settings: object) -> None:
        self.settings = settings
