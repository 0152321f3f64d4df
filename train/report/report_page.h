#pragma once
// The style sheet and script of the report page, report.css and report.js, embedded at configure time. The
// script draws the charts described by the element "data":
//   {"charts": [{"title", "unit", "from_zero", "log", "wide", "marks": [step, ...],
//                "series": [{"name", "dots", "points": [[step, value], ...]}, ...]}, ...]}
// `from_zero` starts the axis at 0, `log` offers a logarithmic one, `marks` are steps to highlight.

namespace flatshard {

extern const char kReportStyle[];   // inside <style>
extern const char kReportScript[];  // inside <script>

}  // namespace flatshard
