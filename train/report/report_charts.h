#pragma once
// The curves of a report page as the JSON that report.js draws (report_page.h).

#include <string>
#include <vector>

#include "train/report/run_curves.h"

namespace flatshard {

struct NamedCurves {
  std::string name;
  const RunCurves* curves;
};

// Text that can stand inside <script>: "<" is escaped.
std::string charts_json(const std::vector<NamedCurves>& runs);

}  // namespace flatshard
