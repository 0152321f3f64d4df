#pragma once
// What a page shows of several runs besides their curves: a list with a row for each run, and the config keys
// in which they differ.

#include <string>
#include <vector>

#include "train/report/report.h"

namespace flatshard {

// The list of runs as HTML. The script run_list.js makes it sortable and adds a filter, which searches the
// cells of class "text" and the attribute data-config, the differing keys as lines "optimizer.lr=0.003". It
// sorts by data-value where a cell has it.
std::string run_list_html(const std::vector<ReportedRun>& runs);

// A table of the differing keys, with a column for each run, under its heading.
std::string config_differences_html(const std::vector<ReportedRun>& runs);

}  // namespace flatshard
