#include "train/save/train_state.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"
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
  visit("bf16_products", s.bf16_products);
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

void check_known(const OrderedJsonReader& in) {
  if (const auto unknown = in.unknown_member()) fail(str(in.where(), ": unknown member ", *unknown));
}

int64_t whole(const OrderedJsonReader& in, const char* key) { return in.whole(key, 0, INT64_MAX); }

// Visits the members.
struct FromJson {
  const OrderedJsonReader& in;

  void operator()(const char* key, int64_t& value) const { value = whole(in, key); }
  void operator()(const char* key, double& value) const { value = in.number(key); }
  void operator()(const char* key, std::optional<int64_t>& value) const {
    if (in.has(key)) value = whole(in, key);
  }
  void operator()(const char* key, std::optional<double>& value) const {
    if (!in.has(key)) return;
    const Json& item = in.value(key);
    if (item.is_string()) value = non_finite_named(item.get<std::string>());
    if (!value) value = in.number(key);
  }
  void operator()(const char* key, std::optional<std::string>& value) const {
    if (in.has(key)) value = in.text(key);
  }
  void operator()(const char* key, std::optional<TrainState::Evaluated>& value) const {
    if (!in.has(key)) return;
    const OrderedJsonReader item = in.object(key);
    value = {.step = whole(item, "step"), .loss = item.number("loss")};
    check_known(item);
  }
  void operator()(const char* key, std::map<std::string, std::string>& values) const {
    const OrderedJsonReader members = in.object(key);
    for (const auto& [name, value] : members.members().items()) values[name] = members.text(name);
  }
  void operator()(const char* key, std::vector<TrainState::Source>& sources) const {
    if (!in.has(key)) return;
    for (const OrderedJsonReader& item : in.objects(key, kMostDataFiles)) {
      sources.push_back({.fingerprint = item.text("fingerprint"),
                         .position = {whole(item, "epoch"), whole(item, "sequence")}});
      check_known(item);
    }
  }
  void operator()(const char* key, std::vector<RunChange>& changes) const {
    if (!in.has(key)) return;
    for (const OrderedJsonReader& item : in.objects(key, SIZE_MAX)) {
      changes.push_back({.step = whole(item, "step"),
                         .key = item.text("key"),
                         .from = item.text("from"),
                         .to = item.text("to")});
      check_known(item);
    }
  }
  void operator()(const char* key, std::vector<StepMetrics>& lines) const {
    const Json& list = in.value(key);
    check(list.is_array() && list.size() <= kMostHistoryLines, in.where(key), " must be an array of at most ",
          kMostHistoryLines, " lines");
    for (const Json& line : list)
      lines.push_back(parse_metrics(json_text(line), str(in.where(key), ' ', lines.size() + 1)));
  }
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
  const OrderedJsonReader in(path, checked_json<Json>(text, path));
  TrainState state;
  each_member(state, FromJson{in});
  FromJson{in}(kHistory, state.log_history);
  check_known(in);
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
