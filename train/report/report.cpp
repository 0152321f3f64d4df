#include "train/report/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/report/html.h"
#include "train/report/report_charts.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostConfigBytes = 1 << 20, kMostTimelineBytes = 1 << 20;
constexpr char kNothing[] = "\u2013";
// The beginning of every page, by which write_report() recognises one.
constexpr std::string_view kMark =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"generator\" content=\"Flatshard report\">\n";
// The Content-Security-Policy makes the browser block all fetches.
constexpr char kHead[] =
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'\">\n<meta name=\"color-scheme\" content=\"light dark\">\n";

std::string formatted(double value, const char* format) {
  if (std::isnan(value)) return "nan";  // C prints the sign of one, too
  char text[400];                       // the largest double has 309 digits
  std::snprintf(text, sizeof text, format, value);
  return text;
}

struct Row {
  std::string name, value, note;
  bool is_compared = false;  // a comparison of runs shows the note where it differs
};

Row best_evaluation(const RunCurves& c) {
  if (!c.best_eval) return {"Best eval loss", kNothing, "no evaluation", true};
  return {"Best eval loss", formatted(*c.best_eval->eval_loss, "%.4f"),
          str("at step ", with_commas(c.best_eval->step), ", of ", with_commas(c.evaluations),
              c.evaluations == 1 ? " evaluation" : " evaluations"),
          true};
}

Row median_step(const RunCurves& c) {
  const std::optional<double> seconds = c.step_seconds.value();
  return {"Median step", seconds ? human_seconds(*seconds) : kNothing,
          c.predicted_seconds ? str("predicted ", human_seconds(*c.predicted_seconds)) : "no prediction"};
}

Row median_mfu(const RunCurves& c) {
  const std::string at_most = c.mfu_is_bound ? "at most " : "";
  const auto percent = [&](const SampledMedian& share) {
    return share.value() ? at_most + formatted(100 * *share.value(), "%.1f%%") : kNothing;
  };
  return {"Median MFU", percent(c.mfu),
          str(percent(c.mfu_causal), " with causal attention",
              c.mfu_is_bound ? "; the peak was measured on a busy machine" : "")};
}

// The ranks and hosts that the last start recorded.
Row ranks_row(const ReportedRun& run) {
  if (run.starts.empty()) return {"Ranks", kNothing, "not recorded", true};
  return {"Ranks", with_commas(run.starts.back().ranks), escaped(describe_hosts(run.starts.back().hosts)),
          true};
}

Row version_row(const ReportedRun& run) {
  if (run.starts.empty()) return {"Version", kNothing, "not recorded"};
  const int64_t starts = std::ssize(run.starts);
  return {"Version", escaped(run.starts.back().version),
          starts > 1 ? str("of the last of ", starts, " starts") : ""};
}

Row communication_row(const RunCurves& c) {
  const std::optional<double> share = c.median_comm_share.value();
  return {"Communication", share ? formatted(100 * *share, "%.1f%%") : kNothing,
          share ? "median share of a step that waits for it" : "not measured on one rank or on GPUs"};
}

std::vector<Row> summary(const ReportedRun& run) {
  const RunCurves& c = run.curves;
  const int64_t skipped = c.last.data_step - c.last.step;
  const std::optional<double> speed = c.tokens_per_second.value();
  return {
      {"Steps", with_commas(c.last.step), skipped > 0 ? with_commas(skipped) + " skipped" : "none skipped",
       true},
      {"Loss", c.last_loss ? formatted(*c.last_loss, "%.4f") : kNothing,
       c.last_loss ? "of the last step" : "no update was made"},
      best_evaluation(c),
      {"Tokens", human_count(static_cast<double>(c.last.tokens)), with_commas(c.last.tokens)},
      {"Median tokens/s", speed ? human_count(*speed) : kNothing, "all ranks"},
      median_step(c),
      median_mfu(c),
      communication_row(c),
      {"Time", c.elapsed_seconds < 60 ? human_seconds(c.elapsed_seconds) : human_duration(c.elapsed_seconds),
       c.has_elapsed_times     ? "with evaluations and checkpoints"
       : c.missing_lines() > 0 ? "listed steps only"
                               : "steps only, without evaluation",
       true},
      {"Last step, UTC", c.last.time ? utc(*c.last.time) : kNothing, c.last.time ? "" : "not recorded"},
      {"Peak memory", human_bytes(c.peak_memory), with_commas(c.peak_memory) + " bytes"},
      ranks_row(run),
      version_row(run)};
}

std::string summary_html(const ReportedRun& run) {
  std::string html = "<table class=\"summary\"><tbody>\n";
  for (const Row& row : summary(run))
    html += str("<tr><th scope=\"row\">", row.name, "</th><td>", row.value, "</td><td class=\"note\">",
                row.note, "</td></tr>\n");
  return html + "</tbody></table>\n";
}

// A table with a column for each run; `rows` are the rows of its body.
std::string table_of_runs(const std::vector<ReportedRun>& runs, const char* corner, const std::string& rows) {
  std::string html = str("<div class=\"wide\"><table class=\"runs\"><thead><tr><th>", corner, "</th>");
  for (size_t i = 0; i < runs.size(); ++i)
    html += str("<th scope=\"col\"><span class=\"key\" data-run=\"", i, "\">", escaped(runs[i].name),
                "</span></th>");
  return str(html, "</tr></thead>\n<tbody>\n", rows, "</tbody></table></div>\n");
}

std::string comparison_html(const std::vector<ReportedRun>& runs) {
  std::vector<std::vector<Row>> columns;
  for (const ReportedRun& run : runs) columns.push_back(summary(run));
  std::string rows;
  for (size_t row = 0; row < columns.front().size(); ++row) {
    const Row& first = columns.front()[row];
    const bool notes =
        first.is_compared && std::any_of(columns.begin(), columns.end(),
                                         [&](const auto& column) { return column[row].note != first.note; });
    rows += str("<tr><th scope=\"row\">", first.name, "</th>");
    for (const std::vector<Row>& column : columns)
      rows += str("<td>", column[row].value,
                  notes ? "<span class=\"note\">" + column[row].note + "</span>" : "", "</td>");
    rows += "</tr>\n";
  }
  return table_of_runs(runs, "", rows);
}

// A config key in which runs differ.
struct ConfigDifference {
  std::string key;                                 // "optimizer.lr"
  std::vector<std::optional<std::string>> values;  // the value in each config, as TOML; empty: none
};

// Calls visit(key, value) for the lines "[section]" and "name = value" that to_toml() writes.
template <class Visit>
void each_value(const std::string& config, Visit&& visit) {
  std::istringstream lines(config);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with('[') && line.ends_with(']'))
      section = line.substr(1, line.size() - 2) + '.';
    else if (!line.starts_with('#') && equals != line.npos)
      visit(section + line.substr(0, equals), line.substr(equals + 3));
  }
}

bool is_equal_in_all(const ConfigDifference& d) {
  return std::all_of(d.values.begin(), d.values.end(),
                     [&](const auto& value) { return value == d.values.front(); });
}

// The differences in the order of the first config that has the key, without run.dir, which always differs.
// They are found line by line, so that keys of other versions of this program are compared, too.
std::vector<ConfigDifference> config_differences(const std::vector<std::string>& configs) {
  std::vector<ConfigDifference> all;
  for (size_t i = 0; i < configs.size(); ++i)
    each_value(configs[i], [&](const std::string& key, const std::string& value) {
      auto found = std::find_if(all.begin(), all.end(), [&](const auto& d) { return d.key == key; });
      if (found == all.end())
        found = all.insert(found, {.key = key, .values = {configs.size(), std::nullopt}});
      found->values[i] = value;
    });
  std::erase_if(all, [](const ConfigDifference& d) { return d.key == "run.dir" || is_equal_in_all(d); });
  return all;
}

std::string differences_html(const std::vector<ReportedRun>& runs) {
  std::vector<std::string> configs;
  for (const ReportedRun& run : runs) configs.push_back(run.config);
  std::string rows;
  for (const ConfigDifference& d : config_differences(configs)) {
    rows += str("<tr><th scope=\"row\"><code>", escaped(d.key), "</code></th>");
    for (const std::optional<std::string>& value : d.values)
      rows += value ? str("<td><code>", escaped(*value), "</code></td>") : str("<td>", kNothing, "</td>");
    rows += "</tr>\n";
  }
  const std::string title = "<h2>Config differences</h2>\n";
  if (rows.empty()) return title + "<p class=\"note\">The configs differ in run.dir only.</p>\n";
  return title + table_of_runs(runs, "key", rows);
}

std::string state_html(const PageState& s) {
  constexpr const char* kNames[] = {"running", "finished", "stopped", "failed"};
  const char* const name = kNames[static_cast<int>(s.kind)];
  const std::string life = s.kind == PageState::Kind::running
                               ? str(" data-refresh=\"", formatted(s.refresh_seconds, "%.0f"), '"')
                               : "";
  return str("<p id=\"state\" class=\"", name, "\" data-written=\"", formatted(s.written, "%.0f"), '"', life,
             "><b>", name, "</b> ", escaped(s.progress), "<span></span>",
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
        "the "
        "highest value.</p>\n";
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
      compares    ? comparison_html(runs)
      : has_steps ? summary_html(runs.front())
                  : "<p>There are no steps yet.</p>\n",
      "<noscript><p>Enable JavaScript to show the curves; the page loads no external script.</p></noscript>\n"
      "<div id=\"switches\"></div>\n<div id=\"charts\"></div>\n",
      notes_html(runs), compares ? "" : timeline_html(runs.front()),
      compares ? "" : samples_html(runs.front().samples), compares ? differences_html(runs) : "", origins,
      "</main>\n<script type=\"application/json\" id=\"data\">", charts_json(curves), "</script>\n<script>\n",
      kReportScript, "</script>\n</body>\n</html>\n");
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
