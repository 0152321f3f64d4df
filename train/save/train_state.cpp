#include "train/save/train_state.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"
#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/report/log_history.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;

// The one list of members, for reading and writing: State is TrainState or const TrainState. The history
// follows them in the file.
template <class State, class Visit>
void each_member(State& s, Visit&& visit) {
  visit("step", s.step);
  visit("data_step", s.data_step);
  visit("tokens", s.tokens);
  visit("skipped_in_a_row", s.skipped_in_a_row);
  visit("loss_scale", s.loss_scale);
  visit("good_steps", s.good_steps);
  visit("eval_loss", s.eval_loss);
  visit("best", s.best);
  visit("lowest_eval", s.lowest_eval);
  visit("evals_not_lower", s.evals_not_lower);
  visit("data_epoch", s.data_epoch);
  visit("data_sequence", s.data_sequence);
  visit("sources", s.sources);
  visit("lane_sequences", s.lane_sequences);
  visit("data_tokens", s.data_tokens);
  visit("data_documents", s.data_documents);
  visit("data_fingerprint", s.data_fingerprint);
  visit("eval_fingerprint", s.eval_fingerprint);
  visit("base_fingerprint", s.base_fingerprint);
  visit("ranks", s.ranks);
  visit("config", s.config);
  visit("changes", s.changes);
}

struct Writer {
  void operator()(const char* key, int64_t value) { json[key] = value; }
  void operator()(const char* key, double value) { json[key] = value; }
  void operator()(const char* key, const std::optional<int64_t>& value) {
    if (value) json[key] = *value;
  }
  void operator()(const char* key, const std::optional<double>& value) {
    if (!value) return;
    if (std::isfinite(*value))
      json[key] = *value;
    else
      json[key] = name_of_non_finite(*value);
  }
  void operator()(const char* key, const std::optional<std::string>& value) {
    if (value) json[key] = *value;
  }
  void operator()(const char* key, const std::optional<TrainState::Evaluated>& value) {
    if (value) json[key] = Json{{"step", value->step}, {"loss", value->loss}};
  }
  void operator()(const char* key, const std::map<std::string, std::string>& values) { json[key] = values; }
  void operator()(const char* key, const std::vector<RunChange>& changes) {
    for (const RunChange& c : changes)
      json[key].push_back({{"step", c.step}, {"key", c.key}, {"from", c.from}, {"to", c.to}});
  }

  void operator()(const char* key, const std::vector<TrainState::Source>& sources) {
    for (const auto& [fingerprint, position] : sources)
      json[key].push_back(
          {{"fingerprint", fingerprint}, {"epoch", position.epoch}, {"sequence", position.sequence}});
  }

  Json json = Json::object();
};

constexpr char kHistory[] = "log_history";

// Reads members and removes them from the object, so that unknown ones remain. `where` is the file.
struct Reader {
  void operator()(const char* key, int64_t& value) { value = whole(key, take(key)); }
  void operator()(const char* key, double& value) { value = number(key, take(key)); }
  void operator()(const char* key, std::optional<int64_t>& value) {
    if (json.contains(key)) value = whole(key, take(key));
  }
  void operator()(const char* key, std::optional<double>& value) {
    if (!json.contains(key)) return;
    const Json item = take(key);
    value = item.is_string() ? non_finite_named(item.get<std::string>()) : number(key, item);
    check(value.has_value(), where, ": ", key, " is ", json_text(item), ", must be a number");
  }
  void operator()(const char* key, std::optional<std::string>& value) {
    if (!json.contains(key)) return;
    value = text(key, take(key));
  }
  void operator()(const char* key, std::optional<TrainState::Evaluated>& value) {
    if (!json.contains(key)) return;
    const Json item = take(key);
    check(item.is_object() && item.size() == 2 && item.contains("step") && item.contains("loss"), where, ": ",
          key, " is ", json_text(item), ", must have step and loss");
    value = {.step = whole(key, item["step"]), .loss = number(key, item["loss"])};
  }
  void operator()(const char* key, std::map<std::string, std::string>& values) {
    const Json item = take(key);
    check(item.is_object(), where, ": ", key, " must be an object");
    for (const auto& [name, value] : item.items()) {
      check(value.is_string(), where, ": ", key, ": ", name, " is ", json_text(value), ", must be a string");
      values[name] = value.get<std::string>();
    }
  }

  void operator()(const char* key, std::vector<TrainState::Source>& sources) {
    if (!json.contains(key)) return;
    const Json list = take(key);
    check(list.is_array() && list.size() <= kMostDataFiles, where, ": ", key, " must be an array of at most ",
          kMostDataFiles, " files");
    for (const Json& item : list) {
      check(item.is_object() && item.size() == 3 && item.contains("fingerprint") && item.contains("epoch") &&
                item.contains("sequence"),
            where, ": ", key, " has ", json_text(item), ", must have fingerprint, epoch and sequence");
      sources.push_back({.fingerprint = text(key, item["fingerprint"]),
                         .position = {whole(key, item["epoch"]), whole(key, item["sequence"])}});
    }
  }

  void operator()(const char* key, std::vector<RunChange>& changes) {
    if (!json.contains(key)) return;
    const Json list = take(key);
    check(list.is_array(), where, ": ", key, " must be an array");
    for (const Json& item : list) {
      check(item.is_object() && item.size() == 4 && item.contains("step") && item.contains("key") &&
                item.contains("from") && item.contains("to"),
            where, ": ", key, " has ", json_text(item), ", must have step, key, from and to");
      changes.push_back({.step = whole(key, item["step"]),
                         .key = text(key, item["key"]),
                         .from = text(key, item["from"]),
                         .to = text(key, item["to"])});
    }
  }

  void operator()(const char* key, std::vector<StepMetrics>& lines) {
    const Json item = take(key);
    check(item.is_array() && item.size() <= kMostHistoryLines, where, ": ", key,
          " must be an array of at most ", kMostHistoryLines, " lines");
    for (const Json& line : item)
      lines.push_back(parse_metrics(json_text(line), str(where, ": ", key, ' ', lines.size() + 1)));
  }

  int64_t whole(const char* key, const Json& item) const {
    const bool fits = item.is_number_unsigned() && item.get<uint64_t>() <= uint64_t{INT64_MAX};
    check(fits, where, ": ", key, " is ", json_text(item), ", must be a whole number from 0 to 2^63 - 1");
    return item.get<int64_t>();
  }
  std::string text(const char* key, const Json& item) const {
    check(item.is_string(), where, ": ", key, " is ", json_text(item), ", must be a string");
    return item.get<std::string>();
  }
  double number(const char* key, const Json& item) const {
    check(item.is_number(), where, ": ", key, " is ", json_text(item), ", must be a number");
    return item.get<double>();
  }
  Json take(const char* key) {
    const auto found = json.find(key);
    check(found != json.end(), where, ": ", key, " is missing");
    Json item = *found;
    json.erase(found);
    return item;
  }

  Json json;
  std::string where;
};

// Refuses numbers that no run can have reached.
void check_numbers(const TrainState& state, const std::string& path) {
  check(state.loss_scale > 0 && std::isfinite(state.loss_scale), path, ": loss_scale is ", state.loss_scale,
        ", must be positive");
  check(state.step <= state.data_step, path, ": step is ", state.step,
        ", more than data_step = ", state.data_step);
  check(static_cast<double>(state.data_step) <= kMostSteps, path, ": data_step is ", state.data_step,
        ", must be at most ", kMostSteps);
  check(state.data_epoch.value_or(0) <= state.data_step, path, ": data_epoch is ",
        state.data_epoch.value_or(0), ", more than data_step = ", state.data_step);
  int64_t before = 0;
  for (const StepMetrics& m : state.log_history) {
    check(m.data_step > before && m.step >= 0 && m.step <= m.data_step, path, ": ", kHistory, ": step ",
          m.step, " of data_step ", m.data_step, " cannot follow data_step ", before);
    before = m.data_step;
  }
  check(before == state.data_step, path, ": ", kHistory, " ends with data_step ", before, ", must end with ",
        state.data_step);
}

}  // namespace

// One line of text per line of the history.
std::string to_json(const TrainState& state) {
  Writer writer;
  each_member(state, writer);
  std::string text = json_text(writer.json, 2, InvalidUtf8::replaced), lines;
  text.erase(text.rfind('\n'));
  for (const StepMetrics& m : state.log_history) lines += str(lines.empty() ? "" : ",", "\n    ", to_json(m));
  return str(text, ",\n  \"", kHistory, "\": [", lines, "\n  ]\n}\n");
}

TrainState read_train_state(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  return parse_train_state(read_whole_file(path, kMostBytes), path);
}

TrainState parse_train_state(std::string_view text, const std::string& path) {
  Reader reader{.json = checked_json<Json>(text, path), .where = path};
  check(reader.json.is_object(), path, ": must be a JSON object");
  TrainState state;
  each_member(state, reader);
  reader(kHistory, state.log_history);
  if (!reader.json.empty()) fail(str(path, ": unknown member ", reader.json.begin().key()));
  check_numbers(state, path);
  return state;
}

std::optional<OptimizerChoice> optimizer_in(std::string_view toml) {
  const bool quoted = toml.size() >= 2 && toml.front() == '"' && toml.back() == '"';
  return quoted ? optimizer_named(toml.substr(1, toml.size() - 2)) : std::nullopt;
}

const OptimizerKind& optimizer_of(const TrainState& state) {
  const auto kind = state.config.find("optimizer.kind");
  if (kind == state.config.end()) return *OptimizerChoice{}.row;  // an earlier version had only the default
  const std::optional<OptimizerChoice> choice = optimizer_in(kind->second);
  check(choice.has_value(), TrainState::kFileName, ": optimizer.kind is ", kind->second,
        ", which this version does not have");
  return *choice->row;
}

std::vector<std::string> differences(const TrainState& a, const TrainState& b) {
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& prefix, const Json& left, const Json& right) {
    const auto text = [](const Json& all, const std::string& key) {
      return !all.contains(key)     ? "not set"
             : all[key].is_string() ? all[key].get<std::string>()
                                    : json_text(all[key]);
    };
    for (const Json* all : {&left, &right})
      for (const auto& [key, value] : all->items())
        if ((all == &left || !left.contains(key)) && key != "config" && text(left, key) != text(right, key))
          lines.push_back(str(prefix, key, ": ", text(left, key), ", ", text(right, key)));
  };
  Writer left, right;
  each_member(a, left);
  each_member(b, right);
  compare("", left.json, right.json);
  compare("config ", Json(a.config), Json(b.config));
  return lines;
}

}  // namespace flatshard
