#include "train/report/run_summary.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"
#include "runtime/text.h"
#include "train/report/html.h"

namespace flatshard {

const char kNothing[] = "\u2013";

namespace {

constexpr size_t kMostNamedHosts = 3;

std::string percent(const std::optional<double>& share) {
  return share ? fixed(100 * *share, 1) + '%' : kNothing;
}

SummaryItem steps_item(const RunCurves& c) {
  const int64_t skipped = c.last.data_step - c.last.step;
  const std::string note = skipped > 0 ? with_commas(skipped) + " skipped" : "none skipped";
  return {.name = "Steps",
          .value = with_commas(c.last.step),
          .note = note,
          .brief = skipped > 0 ? note : "",
          .number = static_cast<double>(c.last.step)};
}

SummaryItem loss_item(const RunCurves& c) {
  return {.name = "Loss",
          .value = c.last_loss ? fixed(*c.last_loss, 4) : kNothing,
          .note = c.last_loss ? "of the last step" : "no update was made",
          .number = c.last_loss};
}

SummaryItem best_evaluation_item(const RunCurves& c) {
  if (!c.best_eval) return {.name = "Best eval loss", .value = kNothing, .note = "no evaluation"};
  const std::string at = "at step " + with_commas(c.best_eval->step);
  return {.name = "Best eval loss",
          .value = fixed(*c.best_eval->eval_loss, 4),
          .note = str(at, ", of ", counted(c.evaluations, "evaluation")),
          .brief = at,
          .number = c.best_eval->eval_loss};
}

SummaryItem tokens_item(const RunCurves& c) {
  const auto tokens = static_cast<double>(c.last.tokens);
  return {
      .name = "Tokens", .value = human_count(tokens), .note = with_commas(c.last.tokens), .number = tokens};
}

SummaryItem speed_item(const RunCurves& c) {
  const std::optional<double> speed = c.tokens_per_second.value();
  return {.name = "Median tokens/s",
          .value = speed ? human_count(*speed) : kNothing,
          .note = "all ranks",
          .number = speed};
}

SummaryItem step_time_item(const RunCurves& c) {
  const std::optional<double> seconds = c.step_seconds.value();
  return {
      .name = "Median step",
      .value = seconds ? human_seconds(*seconds) : kNothing,
      .note = c.predicted_seconds ? str("predicted ", human_seconds(*c.predicted_seconds)) : "no prediction",
      .number = seconds};
}

SummaryItem mfu_item(const RunCurves& c) {
  const std::optional<double> mfu = c.mfu.value(), causal = c.mfu_causal.value();
  const auto bounded = [&](const std::optional<double>& share) {
    return (share && c.mfu_is_bound ? "at most " : "") + percent(share);
  };
  return {.name = "Median MFU",
          .value = bounded(mfu),
          .note = str(bounded(causal), " with causal attention",
                      c.mfu_is_bound ? "; the peak was measured on a busy machine" : ""),
          .number = mfu};
}

SummaryItem communication_item(const RunCurves& c) {
  const std::optional<double> share = c.median_comm_share.value();
  return {.name = "Communication",
          .value = percent(share),
          .note = share ? "median share of a step that waits for it" : "not measured on one rank or on GPUs",
          .number = share};
}

SummaryItem time_item(const RunCurves& c) {
  const bool is_short = c.elapsed_seconds < 60;
  const std::string of_steps = c.missing_lines() > 0 ? "listed steps only" : "steps only, without evaluation";
  return {.name = "Time",
          .value = is_short ? human_seconds(c.elapsed_seconds) : human_duration(c.elapsed_seconds),
          .note = c.has_elapsed_times ? "with evaluations and checkpoints" : of_steps,
          .brief = c.has_elapsed_times ? "" : of_steps,
          .number = c.elapsed_seconds};
}

SummaryItem last_step_item(const RunCurves& c) {
  return {.name = "Last step, UTC",
          .value = c.last.time ? utc(*c.last.time) : kNothing,
          .note = c.last.time ? "" : "not recorded",
          .number = c.last.time};
}

SummaryItem memory_item(const RunCurves& c) {
  return {.name = "Peak memory",
          .value = human_bytes(c.peak_memory),
          .note = with_commas(c.peak_memory) + " bytes",
          .number = static_cast<double>(c.peak_memory)};
}

// An item of the last start that the run recorded.
template <class Item>
SummaryItem of_last_start(const ReportedRun& run, const char* name, Item&& item) {
  SummaryItem made{.name = name, .value = kNothing, .note = "not recorded"};
  if (!run.starts.empty()) item(run.starts.back(), made);
  return made;
}

SummaryItem ranks_item(const ReportedRun& run) {
  return of_last_start(run, "Ranks", [](const StartRecord& start, SummaryItem& item) {
    item.value = with_commas(start.ranks);
    item.note = escaped(describe_hosts(start.hosts));
    item.number = static_cast<double>(start.ranks);
  });
}

SummaryItem version_item(const ReportedRun& run) {
  return of_last_start(run, "Version", [&](const StartRecord& start, SummaryItem& item) {
    const int64_t starts = std::ssize(run.starts);
    item.value = escaped(start.version);
    item.note = starts > 1 ? str("of the last of ", starts, " starts") : "";
    item.brief = starts > 1 ? counted(starts, "start") : "";
    item.is_text = true;
  });
}

SummaryItem hosts_item(const ReportedRun& run) {
  return of_last_start(run, "Hosts", [](const StartRecord& start, SummaryItem& item) {
    const size_t hosts = start.hosts.size(), named = std::min(hosts, kMostNamedHosts);
    for (size_t i = 0; i < named; ++i) item.brief += (i > 0 ? ", " : "") + escaped(start.hosts[i].name);
    if (hosts > named) item.brief += str(", ", with_commas(static_cast<int64_t>(hosts - named)), " more");
    item.value = with_commas(static_cast<int64_t>(hosts));
    item.number = static_cast<double>(hosts);
    item.is_text = true;
  });
}

// The different devices; those of equal hosts stand once.
SummaryItem devices_item(const ReportedRun& run) {
  return of_last_start(run, "Devices", [](const StartRecord& start, SummaryItem& item) {
    std::vector<std::string> seen;
    for (const StartHost& host : start.hosts)
      if (std::find(seen.begin(), seen.end(), host.devices) == seen.end()) seen.push_back(host.devices);
    item.value = seen.size() == 1 && start.hosts.size() > 1 ? "each " : "";
    for (size_t i = 0; i < seen.size(); ++i) item.value += (i > 0 ? "; " : "") + escaped(seen[i]);
    item.is_text = true;
  });
}

SummaryItem command_item(const ReportedRun& run) {
  return of_last_start(run, "Command", [](const StartRecord& start, SummaryItem& item) {
    item.value = "<code>" + escaped(start.command) + "</code>";
    item.is_text = true;
  });
}

}  // namespace

std::vector<SummaryItem> summary_of(const ReportedRun& run) {
  const RunCurves& c = run.curves;
  return {steps_item(c),     loss_item(c),    best_evaluation_item(c), tokens_item(c), speed_item(c),
          step_time_item(c), mfu_item(c),     communication_item(c),   time_item(c),   last_step_item(c),
          memory_item(c),    ranks_item(run), version_item(run)};
}

std::vector<SummaryItem> list_items(const ReportedRun& run) {
  const RunCurves& c = run.curves;
  return {steps_item(c),     loss_item(c),    best_evaluation_item(c), speed_item(c),
          ranks_item(run),   hosts_item(run), devices_item(run),       version_item(run),
          command_item(run), time_item(c),    memory_item(c),          communication_item(c),
          step_time_item(c), mfu_item(c),     tokens_item(c),          last_step_item(c)};
}

}  // namespace flatshard
