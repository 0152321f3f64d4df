#pragma once
// One step of a trace as a picture, an SVG that reads on a light and on a dark page: for each rank a row of
// what compute did (forward and backward passes of stages, waiting, the update), a row of gathers and a row
// of reductions.

#include <string>

namespace flatshard {

// Reads a trace.json as write_trace() makes it and writes the picture of its step of median length, the
// first step left out where there are others. An Error names the file when it holds no step.
void write_trace_picture(const std::string& trace_path, const std::string& picture_path);

}  // namespace flatshard
