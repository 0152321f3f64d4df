#include "train/report/report_charts.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;

struct Chart {
  const char *title, *unit;
  bool from_zero = false, log = false, wide = false;
};

struct Series {
  const char* name;
  ThinnedCurve RunCurves::*curve;
  bool dots = false;
};

// Seven digits are more than a chart shows and half of what a double needs.
double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return std::strtod(text, nullptr);
}

Json points_json(const ThinnedCurve& curve, double unit = 1) {
  Json points = Json::array();
  for (const CurvePoint& p : curve.points()) points.push_back({p.step, rounded(p.value / unit)});
  return points;
}

// A series for each run that has one. Curves that no run has are left out.
Json chart_json(const std::vector<NamedCurves>& runs, const Chart& c, const std::vector<Series>& series,
                double unit = 1) {
  Json drawn = Json::array(), marks = Json::array();
  for (size_t run = 0; run < runs.size(); ++run)
    for (const Series& s : series)
      if (const ThinnedCurve& curve = runs[run].curves->*s.curve; !curve.empty())
        drawn.push_back(
            {{"run", run}, {"name", s.name}, {"dots", s.dots}, {"points", points_json(curve, unit)}});
  if (c.wide)
    for (size_t run = 0; run < runs.size(); ++run)
      for (const CurvePoint& p : runs[run].curves->marks.points()) marks.push_back({run, p.step});
  return {{"title", c.title}, {"unit", c.unit}, {"from_zero", c.from_zero}, {"log", c.log},
          {"wide", c.wide},   {"marks", marks}, {"series", drawn}};
}

// Named curves, of those names or of all, if any run has them; the ones of evaluations as dots.
void add_named(const std::vector<NamedCurves>& runs, const Chart& chart,
               std::vector<NamedValue<ThinnedCurve>> RunCurves::*curves,
               std::vector<NamedValue<ThinnedCurve>> RunCurves::*eval_curves,
               const std::vector<std::string>& names, Json& charts) {
  Json drawn = Json::array();
  for (size_t run = 0; run < runs.size(); ++run) {
    const auto add = [&](const std::vector<NamedValue<ThinnedCurve>>& all, const char* suffix, bool dots) {
      for (const auto& [name, curve] : all)
        if (!curve.empty() && (names.empty() || std::find(names.begin(), names.end(), name) != names.end()))
          drawn.push_back(
              {{"run", run}, {"name", name + suffix}, {"dots", dots}, {"points", points_json(curve)}});
    };
    add(runs[run].curves->*curves, "", false);
    add(runs[run].curves->*eval_curves, " (eval)", true);
  }
  if (drawn.empty()) return;
  charts.push_back({{"title", chart.title},
                    {"unit", chart.unit},
                    {"from_zero", chart.from_zero},
                    {"log", chart.log},
                    {"wide", chart.wide},
                    {"marks", Json::array()},
                    {"series", drawn}});
}

// In the largest unit not above the peak, so that the axis has round numbers.
Json memory_json(const std::vector<NamedCurves>& runs) {
  int64_t peak = 0;
  for (const NamedCurves& run : runs) peak = std::max(peak, run.curves->peak_memory);
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double bytes = 1;
  while (static_cast<double>(peak) / bytes >= 1024 && unit < 4) bytes *= 1024, ++unit;
  return chart_json(runs, {.title = "Memory", .unit = kUnits[unit], .from_zero = true},
                    {{"memory", &RunCurves::memory}}, bytes);
}

}  // namespace

std::string charts_json(const std::vector<NamedCurves>& runs) {
  Json names = Json::array(), charts = Json::array();
  for (const NamedCurves& run : runs)
    names.push_back({{"name", run.name},
                     {"tokens", points_json(run.curves->tokens)},
                     {"seconds", points_json(run.curves->seconds)}});
  const auto add = [&](const Chart& chart, const std::vector<Series>& series) {
    charts.push_back(chart_json(runs, chart, series));
  };
  const bool of_answers =
      std::any_of(runs.begin(), runs.end(), [](const auto& run) { return !run.curves->answers.empty(); });
  add({.title = "Loss", .unit = of_answers ? "" : "nats/token", .log = true, .wide = true},
      {{"train", &RunCurves::loss}, {"eval", &RunCurves::eval_loss, true}});
  add_named(runs, {.title = "Loss by file", .unit = "nats/token", .log = true}, &RunCurves::file_losses,
            &RunCurves::file_eval_losses, {}, charts);
  const auto add_answers = [&](const Chart& chart, const std::vector<std::string>& of) {
    add_named(runs, chart, &RunCurves::answers, &RunCurves::eval_answers, of, charts);
  };
  add_answers({.title = "Pairs in the right order", .unit = "share", .from_zero = true}, {"accuracy"});
  add_answers({.title = "Rewards", .unit = "nats"}, {"margin", "chosen_reward", "rejected_reward"});
  add_answers({.title = "Log-probabilities of answers", .unit = "nats"},
              {"chosen_logprob", "rejected_logprob"});
  add_answers({.title = "Divergence from the reference", .unit = "nats/token", .from_zero = true}, {"kl"});
  add_answers({.title = "Clipped ratios", .unit = "share of tokens", .from_zero = true}, {"clip_share"});
  add({.title = "Learning rate", .unit = "", .from_zero = true}, {{"lr", &RunCurves::lr}});
  add({.title = "Gradient norm", .unit = "", .from_zero = true, .log = true},
      {{"norm", &RunCurves::grad_norm}});
  add({.title = "Throughput", .unit = "tokens/s", .from_zero = true}, {{"tokens/s", &RunCurves::throughput}});
  charts.push_back(memory_json(runs));
  if (std::any_of(runs.begin(), runs.end(), [](const auto& run) { return !run.curves->loss_scale.empty(); }))
    add({.title = "Loss scale", .unit = "", .from_zero = true, .log = true},
        {{"scale", &RunCurves::loss_scale}});
  const std::string text = json_text(Json{{"runs", names}, {"charts", charts}}, kOneLine,
                                     InvalidUtf8::replaced);  // names of folders may be invalid UTF-8
  std::string safe;
  for (const char c : text) safe += c == '<' ? "\\u003c" : std::string(1, c);
  return safe;
}

}  // namespace flatshard
