#!/usr/bin/env python3
"""Draws the pictures of this folder, each by the file of its name, from the sources and from recorded.json.

    comm/pictures/draw.py

record.py writes recorded.json. A source or a record that no longer says what a picture shows is an error.
"""
import json
import pathlib

import checkpoint
import lanes
import step
import unit

HERE = pathlib.Path(__file__).resolve().parent


def main():
    recorded = json.loads((HERE / "recorded.json").read_text())
    pictures = {"unit": unit.draw(), "lanes": lanes.draw(recorded["batches"]),
                "checkpoint": checkpoint.draw(recorded["checkpoint"]), "step": step.draw(recorded["trace"])}
    for name, picture in pictures.items():
        picture.save(HERE / f"{name}.svg")


if __name__ == "__main__":
    main()
