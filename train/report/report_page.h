#pragma once
// The style sheet and script of the report page, report.css and report.js, embedded at configure time. The
// script draws the charts described by the element "data":
//   {"runs": [{"name", "tokens": [[step, tokens], ...], "seconds": [[step, seconds], ...]}, ...],
//    "charts": [{"title", "unit", "from_zero", "log", "wide", "noisy", "marks": [[run, step], ...],
//                "series": [{"run", "name", "dots", "points": [[step, value], ...]}, ...]}, ...]}
// `run` is an index into "runs", `from_zero` starts the axis at 0, `log` offers a logarithmic one, the curves
// of `noisy` charts can be smoothed, and `marks` are steps to highlight. A series whose points are only the
// extremes of a longer curve has "means", too. While the run is alive, the element "state" has the attributes
// data-written, seconds since 1970, and data-refresh, the seconds until the page reloads itself.

namespace flatshard {

extern const char kReportStyle[];   // contents of <style>
extern const char kReportScript[];  // contents of <script>

}  // namespace flatshard
