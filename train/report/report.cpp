#include "train/report/report.h"

#include <filesystem>
#include <fstream>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/report/comparison.h"
#include "train/report/html.h"
#include "train/report/report_charts.h"
#include "train/report/run_summary.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostConfigBytes = 1 << 20, kMostTimelineBytes = 1 << 20;
// The beginning of every page, by which write_report() recognises one.
constexpr std::string_view kMark =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"generator\" content=\"Flatshard report\">\n";
// The Content-Security-Policy makes the browser block all fetches.
constexpr char kHead[] =
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'\">\n<meta name=\"color-scheme\" content=\"light dark\">\n";

std::string summary_html(const ReportedRun& run) {
  std::string html = "<table class=\"summary\"><tbody>\n";
  for (const SummaryItem& item : summary_of(run))
    html += str("<tr><th scope=\"row\">", item.name, "</th><td>", item.value, "</td><td class=\"note\">",
                item.note, "</td></tr>\n");
  return html + "</tbody></table>\n";
}

std::string state_html(const PageState& s) {
  constexpr const char* kNames[] = {"running", "finished", "stopped", "failed"};
  const char* const name = kNames[static_cast<int>(s.kind)];
  const std::string life =
      s.kind == PageState::Kind::running ? str(" data-refresh=\"", fixed(s.refresh_seconds, 0), '"') : "";
  return str("<p id=\"state\" class=\"", name, "\" data-written=\"", fixed(s.written, 0), '"', life, "><b>",
             name, "</b> ", escaped(s.progress), "<span></span>",
             s.reason.empty() ? "" : ": " + escaped(s.reason), "</p>\n");
}

std::string notes_html(const std::vector<ReportedRun>& runs) {
  std::string html;
  bool thinned = false;
  for (const ReportedRun& run : runs) {
    thinned = thinned || run.curves.loss.omits_points();
    if (const int64_t missing = run.curves.missing_lines(); missing > 0)
      html += str("<p class=\"note\">", runs.size() > 1 ? escaped(run.name) : "The run",
                  " was resumed from a checkpoint of another folder, whose history omits ",
                  with_commas(missing), " steps.</p>\n");
  }
  if (thinned)
    html +=
        "<p class=\"note\">Each curve shows 2,000 points at most: of every stretch of steps the lowest and "
        "the highest value.</p>\n";
  return html;
}

std::string timeline_html(const ReportedRun& run) {
  if (run.timeline.empty()) return "";
  return str("<h2>Timeline of a step</h2>\n<div class=\"wide\">\n", run.timeline, "</div>\n");
}

// The starts of the run and its resolved config, as two closed sections.
std::string origin_html(const ReportedRun& run, bool named) {
  const std::string of_run = named ? " of " + escaped(run.name) : "";
  const std::string starts = run.starts.empty() ? ""
                                                : str("<details>\n<summary>Starts", of_run, "</summary>\n",
                                                      starts_html(run.starts), "</details>\n");
  return str(starts, "<details>\n<summary>Resolved config", of_run, "</summary>\n<pre>", escaped(run.config),
             "</pre>\n</details>\n");
}

}  // namespace

std::string report_page(const std::vector<ReportedRun>& runs, const std::optional<PageState>& state) {
  check(!runs.empty() && runs.size() <= kMostComparedRuns, "a page of ", runs.size(),
        " runs, must be from 1 to ", kMostComparedRuns);
  const bool compares = runs.size() > 1;
  const bool has_steps = runs.front().curves.lines > 0 || compares;
  const std::string title = compares ? counted(std::ssize(runs), "run") : escaped(runs.front().name);
  std::string origins;
  std::vector<NamedCurves> curves;
  for (const ReportedRun& run : runs) {
    origins += origin_html(run, compares);
    curves.push_back({run.name, &run.curves});
  }
  return str(
      kMark, kHead, "<title>", title, "</title>\n<style>\n", kReportStyle,
      "</style>\n</head>\n<body>\n<main>\n<h1>", title, "</h1>\n", state ? state_html(*state) : "",
      compares    ? run_list_html(runs)
      : has_steps ? summary_html(runs.front())
                  : "<p>There are no steps yet.</p>\n",
      "<noscript><p>Enable JavaScript to show the curves; the page loads no external script.</p></noscript>\n"
      "<div id=\"switches\"></div>\n<div id=\"charts\"></div>\n",
      notes_html(runs), compares ? "" : timeline_html(runs.front()),
      compares ? "" : samples_html(runs.front().samples), compares ? config_differences_html(runs) : "",
      origins, "</main>\n<script type=\"application/json\" id=\"data\">", charts_json(curves),
      "</script>\n<script>\n", kReportScript, "</script>\n</body>\n</html>\n");
}

std::string name_of_folder(const std::string& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string read_timeline(const std::string& folder) {
  const fs::path path = fs::path(folder) / "overlap.svg";
  std::error_code none;
  const bool fits = fs::is_regular_file(path, none) && fs::file_size(path, none) <= kMostTimelineBytes;
  return fits ? read_whole_file(path.string(), kMostTimelineBytes) : "";
}

ReportedRun read_reported_run(const std::string& folder) {
  const fs::path path = folder;
  check(fs::exists(path / "metrics.jsonl"), folder, ": ",
        fs::is_directory(path) ? "contains no metrics.jsonl, so it is not the folder of a run"
                               : "is not a folder; give the folder of a run (run.dir)");
  return {.name = name_of_folder(folder),
          .config = read_whole_file((path / "config.toml").string(), kMostConfigBytes),
          .curves = RunCurves(read_latest_metrics((path / "metrics.jsonl").string())),
          .samples = read_samples((path / "samples.jsonl").string()),
          .timeline = read_timeline(folder),
          .starts = read_starts((path / "starts.jsonl").string())};
}

void write_report(const std::string& path, const std::string& page) {
  if (fs::is_regular_file(path) && fs::file_size(path) > 0) {
    std::string begin(kMark.size(), ' ');
    std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
    check(begin == kMark, path, ": is not a report page, so it is not replaced; give another name");
  }
  write_whole_file(path, page);
}

}  // namespace flatshard
