"""Golden event file: the lines of event_file.jsonl as TensorBoard's own writer encodes them (needs tensorboard)."""
import json
import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
POSITIONS = ("step", "data_step", "time", "elapsed_seconds")


def main():
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    with open(os.path.join(FOLDER, "event_file.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    with open(os.path.join(FOLDER, "event_file.tfevents"), "wb") as file:
        writer = RecordWriter(file)
        events = [Event(wall_time=1763889000.25, file_version="brain.Event:2"),
                  Event(wall_time=1763889000.25, step=300, session_log=SessionLog(status=SessionLog.START))]
        for line in lines:
            scalars = {key: value for key, value in line.items()
                       if key not in POSITIONS and (key == "skipped" or not line.get("skipped"))}
            values = [Summary.Value(tag=key, simple_value=float(value)) for key, value in scalars.items()]
            events.append(Event(wall_time=line["time"], step=line["step"], summary=Summary(value=values)))
        for event in events:
            writer.write(event.SerializeToString())
        writer.flush()


if __name__ == "__main__":
    main()
