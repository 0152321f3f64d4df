#pragma once
// The report page: self-contained HTML that needs no network and no other files. For one run it shows a
// summary, curves over steps, tokens or time with the values under the pointer, with run.trace the timeline
// of a step, samples, and the resolved config; for several runs a list of them instead of the summary, which
// chooses the runs in the charts, and the config keys in which they differ. It can be rebuilt from a run
// folder at any time.

#include <optional>
#include <string>
#include <vector>

#include "train/report/run_curves.h"
#include "train/report/sample_texts.h"
#include "train/report/start_records.h"

namespace flatshard {

struct ReportedRun {
  std::string name;
  std::string config;  // the resolved config as TOML
  RunCurves curves;
  std::vector<SampleText> samples{};
  std::string timeline{};  // the contents of overlap.svg
  std::vector<StartRecord> starts{};
};

// The state of a run, for a page that the run itself writes.
struct PageState {
  enum class Kind { running, finished, stopped, failed };
  Kind kind = Kind::running;
  std::string progress;        // "step 120 of 1,000"
  std::string reason{};        // why the run was stopped or failed
  double written = 0;          // time of writing, in seconds since 1970
  double refresh_seconds = 0;  // seconds until the page of a running run reloads itself
};

inline constexpr size_t kMostComparedRuns = 16;

// The page of at most kMostComparedRuns runs; `state` is for a single run only.
std::string report_page(const std::vector<ReportedRun>& runs,
                        const std::optional<PageState>& state = std::nullopt);

// Reads metrics.jsonl, samples.jsonl, starts.jsonl, config.toml and overlap.svg of a run folder. The run may
// be alive, or it may have crashed. An Error if the folder does not contain the files of a run.
ReportedRun read_reported_run(const std::string& folder);

// overlap.svg of a run folder; "" if there is none, or if it is larger than a page should be.
std::string read_timeline(const std::string& folder);

// The last component of a folder's path.
std::string name_of_folder(const std::string& folder);

// Writes a page atomically. It replaces a page, and for any other existing file it is an Error.
void write_report(const std::string& path, const std::string& page);

}  // namespace flatshard
