#include "train/report/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;

// The one list of keys, for both directions: Metrics is StepMetrics or const StepMetrics.
template <class Metrics, class Visit>
void each_field(Metrics& m, Visit&& visit) {
  visit("step", m.step);
  visit("data_step", m.data_step);
  visit("time", m.time);
  visit("elapsed_seconds", m.elapsed_seconds);
  visit("loss", m.loss);
  visit("grad_norm", m.grad_norm);
  visit("lr", m.lr);
  visit("tokens", m.tokens);
  visit("tokens_per_second", m.tokens_per_second);
  visit("all_tokens_per_second", m.all_tokens_per_second);
  visit("step_seconds", m.step_seconds);
  visit("predicted_seconds", m.predicted_seconds);
  visit("mfu", m.mfu);
  visit("mfu_causal", m.mfu_causal);
  visit("mfu_is_bound", m.mfu_is_bound);
  visit("mfu_published", m.mfu_published);
  visit("memory_bytes", m.memory_bytes);
  visit("skipped", m.skipped);
  visit("loss_scale", m.loss_scale);
  visit("eval_loss", m.eval_loss);
  visit("loss/", m.file_losses);
  visit("targets/", m.file_targets);
  visit("eval_loss/", m.file_eval_losses);
  visit("answers/", m.answers);
  visit("eval_answers/", m.eval_answers);
  visit("experts/", m.experts);
  visit("exposed_comm_seconds", m.exposed_comm_seconds);
  visit("save_seconds", m.save_seconds);
  visit("saved_step", m.saved_step);
  visit("saved_bytes", m.saved_bytes);
  visit("saved_seconds", m.saved_seconds);
}

class Writer {
 public:
  void operator()(const char* key, int64_t value) { json_[key] = value; }
  void operator()(const char* key, double value) {
    if (std::isfinite(value))
      json_[key] = value;
    else
      json_[key] = name_of_non_finite(value);
  }
  void operator()(const char* key, bool value) {
    if (value) json_[key] = true;
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  template <class T>
  void operator()(const char* prefix, const std::vector<NamedValue<T>>& values) {
    for (const NamedValue<T>& of : values) (*this)(str(prefix, of.name).c_str(), of.value);
  }

  const Json& json() const { return json_; }

 private:
  Json json_;
};

Json json_of(const StepMetrics& m) {
  Writer writer;
  each_field(m, writer);
  return writer.json();
}

// Visits the fields of a line.
struct FromJson {
  const OrderedJsonReader& in;

  void operator()(const char* key, int64_t& value) const { value = in.whole(key, INT64_MIN, INT64_MAX); }
  void operator()(const char* key, double& value) const {
    const Json& item = in.value(key);
    const auto named = item.is_string() ? non_finite_named(item.get<std::string>()) : std::nullopt;
    in.must(item.is_number() || named, key, "a number, \"nan\", \"inf\" or \"-inf\"");
    value = named ? *named : item.get<double>();
  }
  void operator()(const char* key, bool& value) const { value = in.flag(key, value); }
  template <class T>
  void operator()(const char* key, std::optional<T>& value) const {
    if (in.has(key)) (*this)(key, value.emplace());
  }
  template <class T>
  void operator()(const char* prefix, std::vector<NamedValue<T>>& values) const {
    for (const auto& [key, item] : in.members().items()) {
      if (!key.starts_with(prefix) || key == prefix) continue;
      values.push_back({key.substr(std::strlen(prefix)), {}});
      (*this)(key.c_str(), values.back().value);
    }
  }
};

constexpr int64_t kMostFileBytes = int64_t{1} << 30;  // some three million steps

std::istringstream opened(const std::string& path) {
  return std::istringstream(read_whole_file(path, kMostFileBytes));
}

std::string text_of(const std::vector<StepMetrics>& lines) {
  std::string text;
  for (const StepMetrics& m : lines) text += to_json(m) + '\n';
  return text;
}

std::string place_of(const std::string& path, const std::vector<StepMetrics>& lines_before) {
  return str(path, ':', lines_before.size() + 1);
}

}  // namespace

const char* name_of_non_finite(double value) {
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::optional<double> non_finite_named(const std::string& name) {
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (name == "inf") return HUGE_VAL;
  if (name == "-inf") return -HUGE_VAL;
  return {};
}

std::string to_json(const StepMetrics& m) { return json_text(json_of(m)); }

StepMetrics parse_metrics(const std::string& line, const std::string& where) {
  Json json;
  try {
    json = parse_json<Json>(line);
  } catch (const Json::parse_error& error) {
    fail(str(where, ": not JSON at byte ", error.byte, " of ", line.size(),
             "; the line is cut off or damaged"));
  } catch (const Json::out_of_range&) {
    fail(str(where, ": a number is too large for a double"));
  }
  check(json.is_object(), where, ": must be a JSON object");
  // Nested values are refused before any of them is copied or printed, which is recursive.
  for (const auto& [key, item] : json.items())
    check(item.is_primitive(), where, ": ", key, " must be a single value");
  StepMetrics m;
  const OrderedJsonReader in(where, std::move(json));
  each_field(m, FromJson{in});
  if (const auto unknown = in.unknown_member()) fail(str(where, ": unknown key ", *unknown));
  return m;
}

std::vector<NamedValue<double>> answer_metrics(const AnswerLoss& loss, const AnswerSums& s) {
  if (loss.kind == LossKind::kto) {
    const double good = std::max(s.desirable, 1.0), bad = std::max(s.examples - s.desirable, 1.0);
    return {{"margin", s.chosen_reward / good - s.rejected_reward / bad},
            {"chosen_reward", s.chosen_reward / good},
            {"rejected_reward", s.rejected_reward / bad},
            {"chosen_logprob", s.chosen / good},
            {"rejected_logprob", s.rejected / bad},
            {"kl", s.divergence / s.examples}};
  }
  if (!loss.has_pairs()) {
    std::vector<NamedValue<double>> values{{"clip_share", s.clipped / s.tokens}};
    if (loss.has_reference()) values.push_back({"kl", s.divergence / s.tokens});
    return values;
  }
  return {{"accuracy", s.correct / s.examples},
          {"margin", (s.chosen_reward - s.rejected_reward) / s.examples},
          {"chosen_reward", s.chosen_reward / s.examples},
          {"rejected_reward", s.rejected_reward / s.examples},
          {"chosen_logprob", s.chosen / s.examples},
          {"rejected_logprob", s.rejected / s.examples}};
}

std::vector<NamedValue<double>> expert_metrics(std::span<const double> counts, int64_t experts) {
  const auto E = static_cast<size_t>(experts);
  double max_load = 0, entropies = 0, unused = 0, blocks = 0;
  for (size_t first = 0; first < counts.size(); first += E) {
    const std::span<const double> block = counts.subspan(first, E);
    const double all = std::accumulate(block.begin(), block.end(), 0.0);
    if (all == 0) continue;
    ++blocks;
    double entropy = 0;
    for (const double count : block) {
      max_load = std::max(max_load, count * static_cast<double>(E) / all);
      if (count > 0)
        entropy -= count / all * std::log(count / all);
      else
        ++unused;
    }
    entropies += E > 1 ? entropy / std::log(static_cast<double>(E)) : 1;
  }
  if (blocks == 0) return {};
  return {{"max_load", max_load}, {"entropy", entropies / blocks}, {"unused", unused}};
}

std::vector<std::pair<std::string, double>> numbers_of(const StepMetrics& m) {
  std::vector<std::pair<std::string, double>> numbers;
  const Json json = json_of(m);
  for (const auto& [key, value] : json.items())
    numbers.emplace_back(key, value.is_string()    ? *non_finite_named(value.get<std::string>())
                              : value.is_boolean() ? 1
                                                   : value.get<double>());
  return numbers;
}

MetricsFile::MetricsFile(const std::string& path, const std::vector<StepMetrics>& lines)
    : file_(path, text_of(lines)) {}

void MetricsFile::write(const StepMetrics& m) { file_.append(to_json(m) + '\n'); }

std::vector<StepMetrics> read_metrics(const std::string& path) {
  std::istringstream in = opened(path);
  std::vector<StepMetrics> all;
  for (std::string line; std::getline(in, line);) all.push_back(parse_metrics(line, place_of(path, all)));
  return all;
}

std::vector<StepMetrics> read_latest_metrics(const std::string& path) {
  std::istringstream in = opened(path);
  std::vector<StepMetrics> lines;
  int64_t number = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const StepMetrics m = parse_metrics(line, str(path, ':', ++number));
    while (!lines.empty() && lines.back().data_step >= m.data_step) lines.pop_back();
    lines.push_back(m);
  }
  return lines;
}

std::vector<StepMetrics> read_metrics_until(const std::string& path, int64_t data_step) {
  std::istringstream in = opened(path);
  std::vector<StepMetrics> lines;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const StepMetrics m = parse_metrics(line, place_of(path, lines));
    if (m.data_step > data_step) break;
    lines.push_back(m);
    if (m.data_step == data_step) break;
  }
  return lines;
}

}  // namespace flatshard
