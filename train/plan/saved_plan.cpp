#include "train/plan/saved_plan.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/parallel.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using std::chrono::nanoseconds;

constexpr int64_t kMostBytes = 64 << 20;
// Bounds of the numbers in a file, so that no sum of times overflows: of seconds, and of nanoseconds.
constexpr double kMostSeconds = 1e9;
constexpr int64_t kMostNanoseconds = 1'000'000'000'000'000;

// Keys, or the beginnings of keys, that a plan depends on; and those among them that it does not depend on.
constexpr std::array kSettings{"run.device",
                               "run.cuda_graphs",
                               "model.",
                               "lora.",
                               "quant.",
                               "data.seq_len",
                               "data.packing",
                               "data.max_patches",
                               "data.image_longest_edge",
                               "train.total_batch_size",
                               "train.batch_size_per_device",
                               "train.lane_size",
                               "train.head_chunk",
                               "train.tile",
                               "train.recompute",
                               "train.offload_activations",
                               "train.loss",
                               "optimizer.kind",
                               "precision.",
                               "parallel."};
constexpr std::array kNoSettings{"model.init_from",
                                 "model.adapter",
                                 "precision.loss_scale",
                                 "parallel.host_ranks",
                                 "parallel.bandwidth_gbps",
                                 "parallel.timeout_seconds",
                                 "parallel.sync_module_states",
                                 "parallel.cpu_ram_efficient_loading"};

bool is_planned(const std::string& key) {
  const auto begins = [&](const char* with) { return key.starts_with(with); };
  return std::any_of(kSettings.begin(), kSettings.end(), begins) &&
         std::none_of(kNoSettings.begin(), kNoSettings.end(), begins);
}

Json json_of(const Trace& trace) {
  std::map<std::string, Json> spans;
  trace.each_span([&](const std::string& row, const std::string& name, auto begin, auto end) {
    spans[row].push_back({name, std::chrono::duration_cast<nanoseconds>(begin - trace.start()).count(),
                          std::chrono::duration_cast<nanoseconds>(end - begin).count()});
  });
  Json rows = Json::array();
  for (const std::string& row : trace.rows())
    rows.push_back({{"name", row}, {"spans", spans.contains(row) ? spans[row] : Json::array()}});
  return {{"rank", trace.process()}, {"rows", rows}};
}

Json json_of(const SavedPlan& plan) {
  Json memory = Json::array(), ranks = Json::array();
  for (const MemoryRow& row : plan.memory)
    memory.push_back({{"name", row.name}, {"bytes", row.bytes}, {"what", row.what}});
  for (const auto& trace : plan.timeline.ranks) ranks.push_back(json_of(*trace));
  return {{"seconds", plan.seconds},
          {"machines", plan.machines},
          {"memory", memory},
          {"settings", plan.settings},
          {"timeline", {{"what", plan.timeline.what}, {"ranks", ranks}}}};
}

int64_t whole(const Json& json, int64_t most) {
  check(json.is_number_unsigned() && json.get<uint64_t>() <= static_cast<uint64_t>(most), json_text(json),
        " must be a whole number from 0 to ", most);
  return json.get<int64_t>();
}

void add_spans(const Json& spans, int row, Trace& trace) {
  for (const Json& span : spans) {
    const auto begin = trace.start() + nanoseconds(whole(span.at(1), kMostNanoseconds));
    trace.add_span(row, span.at(0).get<std::string>(), begin,
                   begin + nanoseconds(whole(span.at(2), kMostNanoseconds)));
  }
}

StepTimeline timeline_in(const Json& json) {
  StepTimeline timeline{.ranks = {}, .what = json.at("what").get<std::string>()};
  for (const Json& rank : json.at("ranks")) {
    Trace& trace = *timeline.ranks.emplace_back(
        std::make_unique<Trace>(static_cast<int>(whole(rank.at("rank"), INT32_MAX))));
    for (const Json& row : rank.at("rows"))
      add_spans(row.at("spans"), trace.add_row(row.at("name").get<std::string>()), trace);
  }
  bool has_step = false;
  if (!timeline.ranks.empty())
    timeline.ranks.front()->each_span([&](const std::string&, const std::string& name, auto, auto) {
      has_step = has_step || name.starts_with("step ");
    });
  check(has_step, "the timeline has no step");
  return timeline;
}

SavedPlan plan_in(const Json& json) {
  SavedPlan plan{.seconds = json.at("seconds").get<double>(),
                 .machines = json.at("machines").get<std::string>(),
                 .timeline = timeline_in(json.at("timeline"))};
  check(plan.seconds > 0 && plan.seconds <= kMostSeconds, "seconds is ", plan.seconds,
        ", must be above 0 and at most ", kMostSeconds);
  for (const Json& row : json.at("memory"))
    plan.memory.push_back({.name = row.at("name").get<std::string>(),
                           .bytes = whole(row.at("bytes"), INT64_MAX),
                           .what = row.at("what").get<std::string>()});
  for (const auto& [key, value] : json.at("settings").items()) plan.settings[key] = value.get<std::string>();
  return plan;
}

// The first setting that differs: "parallel.stages is 2 in the plan and 1 in the run"; "" if none does.
std::string difference(const std::map<std::string, std::string>& plan,
                       const std::map<std::string, std::string>& run) {
  std::map<std::string, std::string> all = run;
  all.insert(plan.begin(), plan.end());
  const auto value = [](const std::map<std::string, std::string>& settings, const std::string& key) {
    const auto found = settings.find(key);
    return found == settings.end() ? "not set" : found->second;
  };
  for (const auto& [key, unused] : all)
    if (const std::string planned = value(plan, key), is = value(run, key); planned != is)
      return str(key, " is ", planned, " in the plan and ", is, " in the run");
  return "";
}

}  // namespace

std::map<std::string, std::string> planned_settings(const RunSetup& setup) {
  Config config = resolved_config(setup, thread_count());
  std::map<std::string, std::string> settings;
  for (const auto& [key, value] : config_values(config))
    if (is_planned(key) || (key == "run.threads" && !setup.device.is_cuda())) settings[key] = value;
  settings["ranks"] = str(setup.ranks());
  settings["ranks of a host"] = str(setup.ranks_on_first_host());
  return settings;
}

std::string plan_path(const std::string& run_folder) { return run_folder + "/plan.json"; }

void save_plan(const std::string& run_folder, const SavedPlan& plan) {
  const std::string path = plan_path(run_folder), text = json_text(json_of(plan)) + '\n';
  check(std::ssize(text) <= kMostBytes, path, ": the plan takes ", text.size(), " bytes, must be at most ",
        kMostBytes);
  std::error_code error;
  fs::create_directories(run_folder, error);
  check(!error, run_folder, ": cannot create the folder: ", error.message());
  if (fs::exists(path, error)) read_plan(path);  // nothing but a plan is replaced
  write_whole_file(path, text);
}

SavedPlan read_plan(const std::string& path) {
  const auto json = checked_json<Json>(read_whole_file(path, kMostBytes), path);
  std::string defect;
  try {
    return plan_in(json);
  } catch (const nlohmann::json::exception& error) {
    defect = error.what();
  } catch (const Error& error) {
    defect = error.what();
  }
  fail(str(path, ": is not a plan of train --plan --save, move it away: ", defect));
}

std::optional<SavedPlan> plan_of_run(const RunSetup& setup, const std::string& run_folder) {
  const std::string path = plan_path(run_folder);
  std::optional<SavedPlan> plan;
  warn_on_error([&] {
    std::error_code none;
    if (!fs::exists(path, none)) return;
    plan = read_plan(path);
    const std::string other = difference(plan->settings, planned_settings(setup));
    if (other.empty()) return;
    plan.reset();
    log_info(path, " is the plan of another run, and predicts nothing: ", other);
  });
  return plan;
}

}  // namespace flatshard
