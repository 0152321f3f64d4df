#pragma once
// The charts of a report page: the curves of runs as JSON, and the style sheet and script that draw them,
// report.css and report.js, which are embedded at configure time. The script reads the element "data":
//   {"runs": [{"name", "tokens": [[step, tokens], ...], "seconds": [[step, seconds], ...]}, ...],
//    "charts": [{"title", "quantity", "unit", "from_zero", "log", "wide", "noisy",
//                "marks": [[run, step], ...],
//                "series": [{"run", "name", "dots", "points": [[step, value], ...]}, ...]}, ...]}
// `run` is an index into "runs", `quantity` and `unit` label the vertical axis, `from_zero` starts the axis
// at 0, `log` offers a logarithmic one, the curves of `noisy` charts can be smoothed, and `marks` are steps
// to highlight. A series whose points are only the extremes of a longer curve has "means", too. While the run
// is alive, the element "state" has the attributes data-written, seconds since 1970, and data-refresh, the
// seconds until the page reloads itself.

#include <string>
#include <vector>

#include "train/report/run_curves.h"

namespace flatshard {

struct NamedCurves {
  std::string name;
  const RunCurves* curves;
};

// The JSON, as text that can stand inside <script>: "<" is escaped.
std::string charts_json(const std::vector<NamedCurves>& runs);

extern const char kReportStyle[];   // contents of <style>
extern const char kReportScript[];  // contents of <script>

}  // namespace flatshard
