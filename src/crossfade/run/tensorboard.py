"""TensorBoard events, written by TensorBoard's own writer: neither torch nor TensorFlow is needed."""

import os
import shutil
from pathlib import Path

from ..errors import UsageError
from .files import writing
from .metrics import COUNTERS, Row, read_rows

try:
    from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
except ModuleNotFoundError as error:
    raise UsageError("TensorBoard events need tensorboard: pip install 'crossfade[report]'.") from error


class TensorBoard:
    """A folder of events that always says what metrics.jsonl says: on opening it is made anew from the rows there."""

    def __init__(self, folder: Path, metrics_path: Path, began: float):
        """`began` is the time at which the run's wall clock stood at zero, in seconds since 1970."""
        with writing(folder):
            if os.path.lexists(folder):
                shutil.rmtree(folder)
            self._writer = EventFileWriter(str(folder), max_queue_size=1000, flush_secs=10)
        self._began = began
        for row in read_rows(metrics_path):
            self.write(row)

    def write(self, row: Row) -> None:
        shown = {key: value for key, value in row.items() if key not in ("step", "wall")}
        values = [Summary.Value(tag=_tag(key), simple_value=value) for key, value in shown.items()]
        time = self._began + row["wall"]
        self._writer.add_event(Event(wall_time=time, step=int(row["step"]), summary=Summary(value=values)))

    def close(self) -> None:
        self._writer.close()


def _tag(key: str) -> str:
    return f"counters/{key}" if key in COUNTERS else key
