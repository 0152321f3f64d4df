#pragma once
// The report of a run: one HTML page that needs nothing beside itself, no network and no other file, and
// opens straight from disk. A summary, curves over the steps with their values under the pointer, and the
// resolved config. It is made from what lies in the run's folder, so it can be made again at any time.

#include <string>

namespace flatshard {

// Reads metrics.jsonl and config.toml in the folder and writes report.html there, whole or not at all.
void write_report(const std::string& run_folder);

}  // namespace flatshard
