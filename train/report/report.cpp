#include "train/report/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>

#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/report/metrics.h"
#include "train/report/report_page.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Two points, lowest and highest, per pixel of the widest chart. At some 20 bytes per point all curves
// together stay below 300 KB.
constexpr size_t kMostPoints = 2000;
constexpr char kNothing[] = "\u2013";

std::string escaped(const std::string& text) {
  std::string html;
  for (const char c : text) {
    if (c == '&')
      html += "&amp;";
    else if (c == '<')
      html += "&lt;";
    else if (c == '>')
      html += "&gt;";
    else if (c == '"')
      html += "&quot;";
    else
      html += c;
  }
  return html;
}

constexpr int64_t kMostConfigBytes = 1 << 20;

std::string formatted(double value, const char* format) {
  if (std::isnan(value)) return "nan";  // C prints the sign of one, too
  char text[400];                       // the largest double has 309 digits
  std::snprintf(text, sizeof text, format, value);
  return text;
}

struct Row {
  std::string name, value, note;
};

// The median of the finite values.
template <class Format>
std::string median_text(std::vector<double> values, Format&& format) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return kNothing;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return format(*middle);
}

Row best_evaluation(const std::vector<StepMetrics>& steps) {
  const StepMetrics* best = nullptr;
  int64_t count = 0;
  for (const StepMetrics& m : steps) {
    if (!m.eval_loss) continue;
    ++count;
    if (!best || *m.eval_loss < *best->eval_loss || std::isnan(*best->eval_loss)) best = &m;
  }
  if (!best) return {"Best eval loss", kNothing, "no evaluation"};
  return {"Best eval loss", formatted(*best->eval_loss, "%.4f"),
          str("at step ", with_commas(best->step), ", of ", with_commas(count),
              count == 1 ? " evaluation" : " evaluations")};
}

// The number of steps without a line: the history of another folder's checkpoint omits some.
int64_t missing_lines(const std::vector<StepMetrics>& steps) {
  return steps.back().data_step - std::ssize(steps);
}

// `steps` are all lines, `made` those with an update.
std::vector<Row> summary(const std::vector<StepMetrics>& steps, const std::vector<StepMetrics>& made) {
  std::vector<double> speeds, shares, causal_shares;
  for (const StepMetrics& m : made) {
    speeds.push_back(m.tokens_per_second);
    shares.push_back(m.mfu);
    causal_shares.push_back(m.mfu_causal);
  }
  double seconds = 0;
  int64_t memory = 0;
  for (const StepMetrics& m : steps) seconds += m.step_seconds, memory = std::max(memory, m.memory_bytes);
  const auto percent = [](double share) { return formatted(100 * share, "%.1f%%"); };
  const int64_t skipped = steps.back().data_step - steps.back().step;
  const bool none = made.empty();
  return {{"Steps", with_commas(steps.back().step),
           skipped > 0 ? with_commas(skipped) + " skipped" : "none skipped"},
          {"Final loss", none ? kNothing : formatted(made.back().loss, "%.4f"),
           none ? "no update was made" : "of the last step"},
          best_evaluation(steps),
          {"Tokens", human_count(static_cast<double>(steps.back().tokens)), with_commas(steps.back().tokens)},
          {"Median tokens/s", median_text(speeds, human_count), "all ranks"},
          {"Median MFU", median_text(shares, percent),
           median_text(causal_shares, percent) + " with causal attention"},
          {"Wall time", seconds < 60 ? human_seconds(seconds) : human_duration(seconds),
           missing_lines(steps) > 0 ? "listed steps only" : "steps only, without evaluation"},
          {"Peak memory", human_bytes(memory), with_commas(memory) + " bytes"}};
}

std::string summary_html(const std::vector<Row>& rows) {
  std::string html = "<table class=\"summary\"><tbody>\n";
  for (const Row& row : rows)
    html += str("<tr><th scope=\"row\">", row.name, "</th><td>", row.value, "</td><td class=\"note\">",
                row.note, "</td></tr>\n");
  return html + "</tbody></table>\n";
}

struct Chart {
  const char *title, *unit;
  bool from_zero = false, log = false, wide = false;
};

template <class Value>
Curve curve_of(const std::vector<StepMetrics>& steps, Value&& value) {
  Curve curve;
  for (const StepMetrics& m : steps)
    if (const std::optional<double> v = value(m); v && std::isfinite(*v)) curve.push_back({m.step, *v});
  return curve;
}

Json points_json(const Curve& curve) {
  Json points = Json::array();
  for (const CurvePoint& p : thinned(curve, kMostPoints))
    // Seven digits are more than a chart shows and half of what a double needs.
    points.push_back({p.step, std::strtod(formatted(p.value, "%.7g").c_str(), nullptr)});
  return points;
}

Json series_json(const char* name, const Curve& curve, bool dots = false) {
  return {{"name", name}, {"dots", dots}, {"points", points_json(curve)}};
}

Json chart_json(const Chart& c, std::vector<Json> series, const Curve& marks = {}) {
  Json mark_steps = Json::array();
  for (const CurvePoint& p : thinned(marks, kMostPoints)) mark_steps.push_back(p.step);
  return {{"title", c.title}, {"unit", c.unit},      {"from_zero", c.from_zero}, {"log", c.log},
          {"wide", c.wide},   {"marks", mark_steps}, {"series", series}};
}

// In the largest unit not above the peak, so that the axis has round numbers.
Json memory_json(const std::vector<StepMetrics>& made) {
  int64_t peak = 0;
  for (const StepMetrics& m : made) peak = std::max(peak, m.memory_bytes);
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double bytes = 1;
  while (static_cast<double>(peak) / bytes >= 1024 && unit < 4) bytes *= 1024, ++unit;
  return chart_json({.title = "Memory", .unit = kUnits[unit], .from_zero = true},
                    {series_json("memory", curve_of(made, [&](const StepMetrics& m) {
                                   return std::optional(static_cast<double>(m.memory_bytes) / bytes);
                                 }))});
}

Json charts_json(const std::vector<StepMetrics>& steps, const std::vector<StepMetrics>& made) {
  using M = StepMetrics;
  const auto curve = [&](double M::*field) {
    return curve_of(made, [=](const M& m) { return std::optional(m.*field); });
  };
  const Curve evaluations = curve_of(steps, [](const M& m) { return m.eval_loss; });
  const Curve scales = curve_of(steps, [](const M& m) { return m.loss_scale; });
  Curve marks;  // all values are equal: only the steps matter
  for (const M& m : steps)
    if (m.skipped || !std::isfinite(m.loss)) marks.push_back({m.step, 0});

  std::vector<Json> losses{series_json("train", curve(&M::loss))};
  if (!evaluations.empty()) losses.push_back(series_json("eval", evaluations, true));
  Json charts = Json::array();
  charts.push_back(chart_json({.title = "Loss", .unit = "nats/token", .log = true, .wide = true},
                              std::move(losses), marks));
  charts.push_back(chart_json({.title = "Learning rate", .unit = "", .from_zero = true},
                              {series_json("lr", curve(&M::lr))}));
  charts.push_back(chart_json({.title = "Gradient norm", .unit = "", .from_zero = true, .log = true},
                              {series_json("norm", curve(&M::grad_norm))}));
  charts.push_back(chart_json({.title = "Throughput", .unit = "tokens/s", .from_zero = true},
                              {series_json("tokens/s", curve(&M::tokens_per_second))}));
  charts.push_back(memory_json(made));
  if (!scales.empty())
    charts.push_back(chart_json({.title = "Loss scale", .unit = "", .from_zero = true, .log = true},
                                {series_json("scale", scales)}));
  return charts;
}

std::string name_of_folder(const std::string& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// The Content-Security-Policy makes the browser block all fetches.
std::string page(const std::string& name, const std::vector<StepMetrics>& steps, const std::string& config) {
  std::vector<StepMetrics> made;
  for (const StepMetrics& m : steps)
    if (!m.skipped) made.push_back(m);
  const char* thinning = made.size() > kMostPoints ? "<p class=\"note\">Each curve shows 2,000 points at "
                                                     "most: of every stretch of steps the lowest and the "
                                                     "highest value.</p>\n"
                                                   : "";
  const int64_t missing = missing_lines(steps);
  const std::string gaps =
      missing == 0
          ? ""
          : str("<p class=\"note\">The run was resumed from a checkpoint of another folder, whose history "
                "omits ",
                with_commas(missing), " steps.</p>\n");
  return str(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
      escaped(name), "</title>\n<style>\n", kReportStyle, "</style>\n</head>\n<body>\n<main>\n<h1>",
      escaped(name), "</h1>\n", summary_html(summary(steps, made)),
      "<noscript><p>Enable JavaScript to show the curves; the page loads no external script.</p></noscript>\n"
      "<div id=\"charts\"></div>\n",
      thinning, gaps, "<details>\n<summary>Resolved config</summary>\n<pre>", escaped(config),
      "</pre>\n</details>\n</main>\n<script type=\"application/json\" id=\"data\">",
      // Contains no user text, so nothing here can end the element.
      Json{{"charts", charts_json(steps, made)}}.dump(), "</script>\n<script>\n", kReportScript,
      "</script>\n</body>\n</html>\n");
}

}  // namespace

Curve thinned(const Curve& curve, size_t most) {
  check(most >= 4, "a curve thinned to ", most, " points, must be at least 4");
  if (curve.size() <= most) return curve;
  const size_t inner = curve.size() - 2, groups = (most - 2) / 2;
  Curve kept{curve.front()};
  for (size_t g = 0; g < groups; ++g) {
    const auto begin = curve.begin() + 1 + static_cast<std::ptrdiff_t>(g * inner / groups),
               end = curve.begin() + 1 + static_cast<std::ptrdiff_t>((g + 1) * inner / groups);
    const auto [low, high] = std::minmax_element(
        begin, end, [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; });
    kept.push_back(*std::min(low, high));
    if (low != high && high->value > low->value) kept.push_back(*std::max(low, high));
  }
  kept.push_back(curve.back());
  return kept;
}

void write_report(const std::string& run_folder) {
  const std::string metrics = (fs::path(run_folder) / "metrics.jsonl").string(),
                    config = (fs::path(run_folder) / "config.toml").string(),
                    path = (fs::path(run_folder) / "report.html").string();
  const std::vector<StepMetrics> steps = read_metrics(metrics);
  check(!steps.empty(), metrics, ": contains no steps to report on");
  write_whole_file(path, page(name_of_folder(run_folder), steps, read_whole_file(config, kMostConfigBytes)));
}

}  // namespace flatshard
