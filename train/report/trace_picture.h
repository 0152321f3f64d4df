#pragma once
// One step of a trace as an SVG for light and dark pages. Each rank has a row for compute (forward and
// backward passes, waits, the update), one for gathers, one for reductions and, with offload, one for copies.

#include <string>

namespace flatshard {

// Reads a trace.json of write_trace() and draws its step of median length, ignoring the first step if there
// are others. An Error names the file if it contains no step.
void write_trace_picture(const std::string& trace_path, const std::string& picture_path);

}  // namespace flatshard
