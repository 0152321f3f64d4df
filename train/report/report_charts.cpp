#include "train/report/report_charts.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "runtime/json.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;

struct Chart {
  const char *title, *quantity, *unit = "";
  bool from_zero = false, log = false, wide = false;
  bool noisy = true;  // whether smoothing is offered
};

struct Series {
  const char* name;
  ThinnedCurve RunCurves::*curve;
  bool dots = false;
};

// Seven digits are more than a chart shows, and half of the digits of a double.
double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return std::strtod(text, nullptr);
}

Json points_json(const Curve& curve, double unit = 1) {
  Json points = Json::array();
  for (const CurvePoint& p : curve) points.push_back({p.step, rounded(p.value / unit)});
  return points;
}

// A curve that omits points has the means, too, from which smoothing starts.
Json series_json(size_t run, const std::string& name, bool dots, const ThinnedCurve& curve, double unit = 1) {
  Json series{{"run", run}, {"name", name}, {"dots", dots}, {"points", points_json(curve.points(), unit)}};
  if (curve.omits_points() && !dots) series["means"] = points_json(curve.means(), unit);
  return series;
}

Json chart_json(const Chart& c, const Json& marks, const Json& series) {
  return {{"title", c.title},         {"quantity", c.quantity}, {"unit", c.unit},
          {"from_zero", c.from_zero}, {"log", c.log},           {"wide", c.wide},
          {"noisy", c.noisy},         {"marks", marks},         {"series", series}};
}

// A chart with a series for each run that has one. Curves that no run has are left out.
Json chart_json(const std::vector<NamedCurves>& runs, const Chart& c, const std::vector<Series>& series,
                double unit = 1) {
  Json drawn = Json::array(), marks = Json::array();
  for (size_t run = 0; run < runs.size(); ++run)
    for (const Series& s : series)
      if (const ThinnedCurve& curve = runs[run].curves->*s.curve; !curve.empty())
        drawn.push_back(series_json(run, s.name, s.dots, curve, unit));
  if (c.wide)
    for (size_t run = 0; run < runs.size(); ++run)
      for (const CurvePoint& p : runs[run].curves->marks.points()) marks.push_back({run, p.step});
  return chart_json(c, marks, drawn);
}

// The key chosen_reward as "chosen reward".
std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

// Adds a chart of named curves, of these keys or of all files, if any run has them. Evaluations are dots.
void add_named(const std::vector<NamedCurves>& runs, const Chart& chart,
               std::vector<NamedValue<ThinnedCurve>> RunCurves::*curves,
               std::vector<NamedValue<ThinnedCurve>> RunCurves::*eval_curves,
               const std::vector<std::string>& keys, Json& charts) {
  Json drawn = Json::array();
  for (size_t run = 0; run < runs.size(); ++run) {
    const auto add = [&](const std::vector<NamedValue<ThinnedCurve>>& all, const char* suffix, bool dots) {
      for (const auto& [name, curve] : all)
        if (!curve.empty() && (keys.empty() || std::find(keys.begin(), keys.end(), name) != keys.end()))
          drawn.push_back(series_json(run, (keys.empty() ? name : spaced(name)) + suffix, dots, curve));
    };
    add(runs[run].curves->*curves, "", false);
    if (eval_curves) add(runs[run].curves->*eval_curves, " (eval)", true);
  }
  if (drawn.empty()) return;
  charts.push_back(chart_json(chart, Json::array(), drawn));
}

// The chart is in the largest unit not above the peak, so that the axis has round numbers.
Json memory_json(const std::vector<NamedCurves>& runs) {
  int64_t peak = 0;
  for (const NamedCurves& run : runs) peak = std::max(peak, run.curves->peak_memory);
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double bytes = 1;
  while (static_cast<double>(peak) / bytes >= 1024 && unit < 4) bytes *= 1024, ++unit;
  return chart_json(
      runs,
      {.title = "Memory", .quantity = "memory", .unit = kUnits[unit], .from_zero = true, .noisy = false},
      {{"memory", &RunCurves::memory}}, bytes);
}

}  // namespace

std::string charts_json(const std::vector<NamedCurves>& runs) {
  Json names = Json::array(), charts = Json::array();
  for (const NamedCurves& run : runs)
    names.push_back({{"name", run.name},
                     {"tokens", points_json(run.curves->tokens.points())},
                     {"seconds", points_json(run.curves->seconds.points())}});
  const auto add = [&](const Chart& chart, const std::vector<Series>& series) {
    charts.push_back(chart_json(runs, chart, series));
  };
  const bool of_answers =
      std::any_of(runs.begin(), runs.end(), [](const auto& run) { return !run.curves->answers.empty(); });
  add({.title = "Loss",
       .quantity = "loss",
       .unit = of_answers ? "" : "nats/token",
       .log = true,
       .wide = true},
      {{"train", &RunCurves::loss}, {"eval", &RunCurves::eval_loss, true}});
  add_named(runs, {.title = "Loss by file", .quantity = "loss", .unit = "nats/token", .log = true},
            &RunCurves::file_losses, &RunCurves::file_eval_losses, {}, charts);
  const auto add_answers = [&](const Chart& chart, const std::vector<std::string>& of) {
    add_named(runs, chart, &RunCurves::answers, &RunCurves::eval_answers, of, charts);
  };
  add_answers({.title = "Pairs in the right order", .quantity = "share of pairs", .from_zero = true},
              {"accuracy"});
  add_answers({.title = "Rewards", .quantity = "reward", .unit = "nats"},
              {"margin", "chosen_reward", "rejected_reward"});
  add_answers({.title = "Log-probabilities of answers", .quantity = "log-probability", .unit = "nats"},
              {"chosen_logprob", "rejected_logprob"});
  add_answers({.title = "Divergence from the reference",
               .quantity = "divergence",
               .unit = "nats/token",
               .from_zero = true},
              {"kl"});
  add_answers({.title = "Clipped ratios", .quantity = "share of tokens", .from_zero = true}, {"clip_share"});
  const auto add_experts = [&](const Chart& chart, const std::string& of) {
    add_named(runs, chart, &RunCurves::experts, nullptr, {of}, charts);
  };
  add_experts({.title = "Largest load of an expert", .quantity = "load", .unit = "x the mean"}, "max_load");
  add_experts({.title = "Entropy of loads", .quantity = "share of the largest"}, "entropy");
  add_experts({.title = "Experts without tokens", .quantity = "experts", .from_zero = true}, "unused");
  add_experts({.title = "Loss that balances experts", .quantity = "loss"}, "aux_loss");
  add_experts({.title = "Router z-loss", .quantity = "loss"}, "z_loss");
  add({.title = "Learning rate", .quantity = "learning rate", .from_zero = true, .log = true, .noisy = false},
      {{"lr", &RunCurves::lr}});
  add({.title = "Gradient norm", .quantity = "gradient norm", .from_zero = true, .log = true},
      {{"norm", &RunCurves::grad_norm}});
  add({.title = "Throughput", .quantity = "throughput", .unit = "tokens/s", .from_zero = true},
      {{"tokens/s", &RunCurves::throughput}});
  if (std::any_of(runs.begin(), runs.end(), [](const auto& run) { return !run.curves->comm_share.empty(); }))
    add({.title = "Communication", .quantity = "exposed", .unit = "% of step time", .from_zero = true},
        {{"communication", &RunCurves::comm_share}});
  charts.push_back(memory_json(runs));
  if (std::any_of(runs.begin(), runs.end(), [](const auto& run) { return !run.curves->loss_scale.empty(); }))
    add({.title = "Loss scale", .quantity = "loss scale", .from_zero = true, .log = true, .noisy = false},
        {{"scale", &RunCurves::loss_scale}});
  const std::string text = json_text(Json{{"runs", names}, {"charts", charts}}, kOneLine,
                                     InvalidUtf8::replaced);  // names of folders may be invalid UTF-8
  std::string safe;
  for (const char c : text) safe += c == '<' ? "\\u003c" : std::string(1, c);
  return safe;
}

}  // namespace flatshard
