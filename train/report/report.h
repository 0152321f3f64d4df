#pragma once
// The report of a run: a self-contained HTML page that needs no network and no other files. It shows a
// summary, curves over the steps with the values under the pointer, and the resolved config. It is generated
// from the files of the run folder and can be rebuilt at any time.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flatshard {

// Reads metrics.jsonl and config.toml of the folder and writes report.html there, atomically.
void write_report(const std::string& run_folder);

// A quantity over the steps of a run.
struct CurvePoint {
  int64_t step;
  double value;
};
using Curve = std::vector<CurvePoint>;

// At most `most` (>= 4) of the points, in order: the first, the last, and the lowest and highest of each of
// equally large groups in between. This preserves the envelope, every spike and the extremes, with their
// exact steps and values. Values must be finite.
Curve thinned(const Curve& curve, size_t most);

}  // namespace flatshard
