#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/check.h"
#include "runtime/text.h"
#include "train/config/fields.h"
#include "train/save/run_start.h"

namespace flatshard {
namespace {

// A key that this version does not have must not change.
ResumeRule rule_of(const std::string& key) {
  static const std::map<std::string, ResumeRule> rules = [] {
    Config config;
    std::map<std::string, ResumeRule> all;
    for (const Field& field : fields(config)) all[field.key] = field.on_resume.value_or(ResumeRule{});
    return all;
  }();
  const auto found = rules.find(key);
  return found == rules.end() ? ResumeRule{} : found->second;
}

// Whether values of optimizer.kind in TOML mean the same state. Paging only moves it.
bool have_same_state(const std::string& a, const std::string& b) {
  const std::optional<OptimizerChoice> of_a = optimizer_in(a), of_b = optimizer_in(b);
  return of_a && of_b && of_a->row == of_b->row;
}

// The values of a key in two configs that differ in it.
struct Difference {
  std::string key, from, to;
};

// A key that one of the configs lacks, because it is newer or decided by the family, has its default.
std::vector<Difference> config_differences(const TrainState& saved, const TrainState& now) {
  Config config;
  const std::map<std::string, std::string> defaults = config_values(config);
  const auto value = [&](const TrainState& state, const std::string& key) {
    for (const auto* values : {&state.config, &defaults})
      if (const auto found = values->find(key); found != values->end()) return found->second;
    return std::string("not set");
  };
  std::set<std::string> keys;
  for (const TrainState* state : {&saved, &now})
    for (const auto& [key, ignored] : state->config) keys.insert(key);
  std::vector<Difference> found;
  for (const std::string& key : keys)
    if (const std::string from = value(saved, key), to = value(now, key); from != to)
      found.push_back({key, from, to});
  return found;
}

std::string why_refused(const Difference& d) {
  const auto [rule, reason] = rule_of(d.key);
  if (rule != OnResume::fixed) return "";
  if (d.key == "optimizer.kind" && have_same_state(d.from, d.to)) return "";
  return str(d.key, " is ", d.to, ", the checkpoint was made with ", d.from, *reason ? ", " : "", reason);
}

bool differ(const std::optional<std::string>& a, const std::optional<std::string>& b) {
  return a && b && *a != *b;
}

// Adds a change of the content of data.train or data.eval: its paths, or, if they are equal, its
// fingerprints.
void add_content(ResumeChanges& found, const char* key, const std::vector<Difference>& differences,
                 const RunChange& fingerprints) {
  const auto paths =
      std::find_if(differences.begin(), differences.end(), [&](const Difference& d) { return d.key == key; });
  found.changes.push_back(
      paths == differences.end() ? fingerprints : RunChange{fingerprints.step, key, paths->from, paths->to});
}

std::string size_of_data(const TrainState& s) {
  return str(with_commas(s.data_tokens), " tokens in ", with_commas(s.data_documents), " documents");
}

void compare_data(const TrainState& saved, const TrainState& now, const std::vector<Difference>& differences,
                  ResumeChanges& found) {
  const bool same_size = saved.data_tokens == now.data_tokens && saved.data_documents == now.data_documents;
  if (!same_size || differ(saved.data_fingerprint, now.data_fingerprint)) {
    // data.max_samples changes the size of the data, but not their fingerprint.
    const bool by_size = !differ(saved.data_fingerprint, now.data_fingerprint);
    const std::string from = by_size ? size_of_data(saved) : *saved.data_fingerprint,
                      to = by_size ? size_of_data(now) : *now.data_fingerprint;
    add_content(found, "data.train", differences, {saved.step, "data.train", quoted(from), quoted(to)});
    found.new_order = true;
    found.other_files_only = !by_size;
  }
  if (differ(saved.eval_fingerprint, now.eval_fingerprint)) {
    add_content(found, "data.eval", differences,
                {saved.step, "data.eval", quoted(*saved.eval_fingerprint), quoted(*now.eval_fingerprint)});
    found.notes.push_back(
        "data.eval has other tokens: earlier evaluation losses, and the best checkpoint, are from other "
        "data");
  }
}

// The files of data.train and their positions.
std::vector<TrainState::Source> sources_of(const TrainState& s) {
  if (!s.sources.empty() || !s.data_fingerprint) return s.sources;
  return {{*s.data_fingerprint, {s.data_epoch.value_or(0), s.data_sequence.value_or(0)}}};
}

const TrainState::Source* find_source(const std::vector<TrainState::Source>& sources,
                                      const std::string& fingerprint) {
  for (const TrainState::Source& source : sources)
    if (source.fingerprint == fingerprint) return &source;
  return nullptr;
}

// Whether the run has several files, one of which the checkpoint knows.
bool continues_a_file(const TrainState& saved, const TrainState& now) {
  return std::any_of(now.sources.begin(), now.sources.end(), [&](const TrainState::Source& source) {
    return find_source(sources_of(saved), source.fingerprint);
  });
}

bool has_change(const ResumeChanges& found, const std::string& key) {
  return std::any_of(found.changes.begin(), found.changes.end(),
                     [&](const RunChange& c) { return c.key == key; });
}

// Whether the ranks of a run can share lanes of this size.
bool can_deal(int64_t lane, const TrainState& run) {
  const auto batch = run.config.find("train.total_batch_size");
  return batch == run.config.end() ||
         std::stoll(batch->second) % (lane * std::max<int64_t>(run.ranks, 1)) == 0;
}

}  // namespace

void update_fingerprints(TrainState& saved, const std::map<std::string, std::string>& earlier) {
  const auto update = [&](std::string& fingerprints) {  // fingerprints of several files are in one text
    for (const auto& [then, now] : earlier)
      for (size_t at = 0; (at = fingerprints.find(then, at)) != fingerprints.npos; at += now.size())
        fingerprints.replace(at, then.size(), now);
  };
  for (std::optional<std::string>* of :
       {&saved.data_fingerprint, &saved.eval_fingerprint, &saved.base_fingerprint})
    if (*of) update(**of);
  for (TrainState::Source& source : saved.sources) update(source.fingerprint);
}

ResumeChanges compare_runs(const TrainState& saved, const TrainState& now) {
  const std::vector<Difference> differences = config_differences(saved, now);
  std::string refused;
  for (const Difference& d : differences)
    if (const std::string reason = why_refused(d); !reason.empty())
      refused += (refused.empty() ? "" : "; ") + reason;
  check(refused.empty(), refused, ": restore it, or start a new run");
  check(!differ(saved.base_fingerprint, now.base_fingerprint), "model.init_from has weights of ",
        now.base_fingerprint.value_or(""), ", the adapters were trained on ",
        saved.base_fingerprint.value_or(""), ": use the model that the run began with");
  ResumeChanges found;
  compare_data(saved, now, differences, found);
  for (const Difference& d : differences)
    if (const ResumeRule rule = rule_of(d.key); rule.records()) {
      found.changes.push_back({saved.step, d.key, d.from, d.to});
      if (rule.rule == OnResume::reorders) found.new_order = true;
      if (rule.rule == OnResume::reorders || d.key == "data.max_samples") found.other_files_only = false;
    } else if (rule.rule != OnResume::silent && !has_change(found, d.key)) {
      found.notes.push_back(describe({saved.step, d.key, d.from, d.to}));
    }
  if (found.new_order && saved.data_epoch)
    found.notes.push_back(str("the sequences of data.train, or their order, are new: epoch ",
                              *saved.data_epoch + 1, " begins again",
                              found.other_files_only && continues_a_file(saved, now)
                                  ? "; a file that was there before continues where it was"
                                  : ""));
  if (saved.lane_sequences != now.lane_sequences)
    found.notes.push_back(str("lanes of ", now.lane_sequences, " sequences, were ", saved.lane_sequences,
                              ": equal up to rounding, not bit for bit",
                              can_deal(saved.lane_sequences, now)
                                  ? str("; train.lane_size = ", saved.lane_sequences, " keeps the bits")
                                  : ""));
  if (differ(saved.bf16_products, now.bf16_products))
    found.notes.push_back(str("this processor multiplies bf16 ", *now.bf16_products, ", earlier steps did ",
                              *saved.bf16_products, ": equal up to rounding, not bit for bit"));
  check(saved.data_sequence || !(found.new_order || has_change(found, "train.total_batch_size")),
        "it does not record the position in its data, because an earlier version wrote it: keep the data and "
        "train.total_batch_size as they were");
  return found;
}

std::vector<SourcePosition> source_positions(const TrainState& saved, const TrainState& now,
                                             const ResumeChanges& changes) {
  std::vector<SourcePosition> positions;
  if (!changes.new_order)
    for (const TrainState::Source& source : saved.sources) positions.push_back(source.position);
  if (!changes.new_order) return positions;
  const std::vector<TrainState::Source> before = sources_of(saved);
  for (size_t i = 0; i < now.sources.size(); ++i) {
    const TrainState::Source* known = find_source(before, now.sources[i].fingerprint);
    if (!known && before.size() == now.sources.size()) known = &before[i];
    const bool is_same =
        known && changes.other_files_only && known->fingerprint == now.sources[i].fingerprint;
    positions.push_back(
        {.epoch = known ? known->position.epoch : 0, .sequence = is_same ? known->position.sequence : 0});
  }
  return positions;
}

DataPosition data_position(const TrainState& saved, const ResumeChanges& changes) {
  if (!saved.data_sequence || !saved.data_epoch) return {};
  return {saved.data_step, *saved.data_epoch, changes.new_order ? 0 : *saved.data_sequence};
}

std::string describe(const RunChange& change) {
  return str("changed since step ", change.step, ": ", change.key, ' ', change.from, " -> ", change.to);
}

std::string history_comment(const std::vector<RunChange>& changes) {
  std::string text;
  for (const RunChange& change : changes) text += str("# ", printable(describe(change)), '\n');
  return text;
}

std::string describe_resumed(const std::string& checkpoint, const TrainState& saved,
                             const ResumeChanges& changes, double next_rate,
                             const std::vector<StepMetrics>& lost) {
  std::vector<std::string> lines;
  for (const RunChange& change : changes.changes) lines.push_back(describe(change));
  // The number of steps, and with it the rate, follows from the data too.
  const bool moves_rate = std::any_of(changes.changes.begin(), changes.changes.end(), [](const RunChange& c) {
    const OnResume rule = rule_of(c.key).rule;
    return rule == OnResume::moves_rate || rule == OnResume::reorders || rule == OnResume::content;
  });
  if (moves_rate && !saved.log_history.empty())
    lines.push_back(str("learning rate: ", saved.log_history.back().lr, " in step ", saved.step, ", ",
                        next_rate, " in step ", saved.step + 1));
  lines.insert(lines.end(), changes.notes.begin(), changes.notes.end());
  if (!lost.empty()) {
    const double seconds = std::accumulate(
        lost.begin(), lost.end(), 0.0, [](double sum, const StepMetrics& m) { return sum + m.step_seconds; });
    lines.push_back(str(counted(static_cast<int64_t>(lost.size()), "later step"),
                        " of this run, lost and computed again: ", human_duration(seconds)));
  }
  std::string text = str("resumed   ", checkpoint, ", after step ", with_commas(saved.step), ", written by ",
                         counted(saved.ranks, "rank"), '\n');
  for (const std::string& line : lines) text += str("          ", printable(line), '\n');
  return text;
}

}  // namespace flatshard
