#pragma once
// The fixed text of the report's page. The script draws what stands in the element "data":
//   {"charts": [{"title", "unit", "from_zero", "log", "wide", "marks": [step, ...],
//                "series": [{"name", "dots", "points": [[step, value], ...]}, ...]}, ...]}
// from_zero lets the axis begin at 0, log offers a logarithmic one, marks are steps to point out.

namespace flatshard {

extern const char kReportStyle[];   // inside <style>
extern const char kReportScript[];  // inside <script>

}  // namespace flatshard
