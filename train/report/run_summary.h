#pragma once
// The numbers and the origin of a run: in rows for the page of one run, in cells for a list of several.

#include <optional>
#include <string>
#include <vector>

#include "train/report/report.h"

namespace flatshard {

// A quantity of a run, as HTML; a value that the run lacks is a dash.
struct SummaryItem {
  std::string name, value;
  std::string note{};              // explains the value on the page of one run
  std::string brief{};             // explains it in a list
  std::optional<double> number{};  // what a list is sorted by; empty: a text or a dash
  bool is_text = false;            // whether a filter searches the value
};

// Steps, losses, speed, memory, ranks and version.
std::vector<SummaryItem> summary_of(const ReportedRun& run);

// The same for a list of runs, and hosts, devices and command. All runs have the same names in the same
// order.
std::vector<SummaryItem> list_items(const ReportedRun& run);

// "\u2013", the value that is missing.
extern const char kNothing[];

}  // namespace flatshard
