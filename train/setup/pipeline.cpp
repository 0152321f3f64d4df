#include "train/setup/pipeline.h"

#include <algorithm>
#include <map>
#include <set>

#include "model/model.h"
#include "runtime/check.h"
#include "runtime/problems.h"
#include "train/setup/device_map.h"

namespace flatshard {
namespace {

Action forward(int chunk, int64_t micro) { return {true, chunk, micro}; }
Action backward(int chunk, int64_t micro) { return {false, chunk, micro}; }

// The actions of one chunk. Its backward passes start after `ahead` further forward passes.
std::vector<Action> alternating(int chunk, int64_t micro_steps, int64_t ahead) {
  std::vector<Action> actions;
  for (int64_t turn = 0; turn < micro_steps + ahead; ++turn) {
    if (turn < micro_steps) actions.push_back(forward(chunk, turn));
    if (turn >= ahead) actions.push_back(backward(chunk, turn - ahead));
  }
  return actions;
}

// Micro-batches in rounds of S: each round passes through the first chunk of the stage, then the second ...
std::vector<Action> interleaved(const Pipeline& pipeline, int stage, const std::vector<int>& chunks,
                                int64_t micro_steps) {
  const int64_t S = pipeline.stages, v = std::ssize(chunks), all = micro_steps * v;
  const int64_t ahead = std::min(all, (S - stage - 1) * 2 + (v - 1) * S);
  const auto at = [&](int64_t turn, bool is_forward) {
    const int64_t place = turn % (S * v) / S;
    return Action{is_forward, chunks[static_cast<size_t>(is_forward ? place : v - 1 - place)],
                  turn / (S * v) * S + turn % S};
  };
  std::vector<Action> actions;
  for (int64_t turn = 0; turn < all + ahead; ++turn) {
    if (turn < all) actions.push_back(at(turn, true));
    if (turn >= ahead) actions.push_back(at(turn - ahead, false));
  }
  return actions;
}

std::vector<Action> actions_without_embedding(const Pipeline& pipeline, int stage, int64_t micro_steps) {
  std::vector<int> chunks;
  for (int chunk = pipeline.embeds_apart ? 1 : 0; chunk <= pipeline.last_chunk(); ++chunk)
    if (pipeline.chunks[static_cast<size_t>(chunk)].stage == stage) chunks.push_back(chunk);
  if (pipeline.schedule == PipelineSchedule::interleaved)
    return interleaved(pipeline, stage, chunks, micro_steps);
  const int64_t ahead = pipeline.schedule == PipelineSchedule::gpipe        ? micro_steps - 1
                        : pipeline.schedule == PipelineSchedule::sequential ? 0
                                                                            : pipeline.stages - 1 - stage;
  return alternating(chunks.front(), micro_steps, std::min(ahead, micro_steps - 1));
}

// Inserts the passes of the embedding into the actions of the last stage. That stage runs `lead` actions
// behind the first stage while the pipeline fills, and ahead of it while it drains: forward passes when the
// first stage is about to need them, backward passes when its gradients should have arrived.
std::vector<Action> with_embedding(const Pipeline& pipeline, const std::vector<Action>& actions,
                                   int64_t micro_steps) {
  const int64_t lead = pipeline.schedule == PipelineSchedule::sequential ? 0 : pipeline.stages - 1;
  std::vector<std::vector<Action>> before(actions.size() + 1), after(actions.size());
  const std::vector<Action> first = actions_without_embedding(pipeline, 0, micro_steps);
  for (int64_t at = 0; at < std::ssize(first); ++at) {
    const Action& action = first[static_cast<size_t>(at)];
    if (action.chunk != 1) continue;
    if (action.forward)
      before[static_cast<size_t>(std::max<int64_t>(at - lead, 0))].push_back(forward(0, action.micro));
    else
      after[static_cast<size_t>(std::min(at + lead, std::ssize(actions) - 1))].push_back(
          backward(0, action.micro));
  }
  std::vector<Action> all;
  for (size_t at = 0; at < actions.size(); ++at) {
    all.insert(all.end(), before[at].begin(), before[at].end());
    all.push_back(actions[at]);
    all.insert(all.end(), after[at].begin(), after[at].end());
  }
  return all;
}

}  // namespace

int Pipeline::stage_of(int layer) const {
  const auto after = std::upper_bound(chunks.begin(), chunks.end(), layer,
                                      [](int wanted, const Chunk& chunk) { return wanted < chunk.first; });
  return std::prev(after)->stage;
}

Pipeline pipeline_of(const ParallelConfig& config, const Model& model, int64_t seq_len, int64_t micro_steps) {
  const int S = static_cast<int>(config.stages);
  Pipeline pipeline{.stages = S};
  if (S == 1) {
    const ParallelConfig defaults;
    check(config.schedule == defaults.schedule && config.device_map == defaults.device_map &&
              config.chunks == defaults.chunks,
          "parallel.stages = 1, so that parallel.schedule, parallel.chunks and parallel.device_map have no "
          "effect: set parallel.stages, or remove them");
    pipeline.chunks = {{0, model.layer_count(), 0}};
    return pipeline;
  }
  pipeline.schedule = config.schedule;
  pipeline.embeds_apart = *model.config().tied;
  const bool interleaves = config.schedule == PipelineSchedule::interleaved;
  Problems problems;
  problems.check(interleaves || config.chunks == ParallelConfig{}.chunks, "parallel.chunks = ", config.chunks,
                 " has an effect only with parallel.schedule = \"interleaved\": remove it");
  problems.check(!interleaves || micro_steps % S == 0,
                 "parallel.schedule = \"interleaved\" needs micro-steps in rounds of ", S,
                 " pipeline stages, but a step has ", micro_steps,
                 ": change train.total_batch_size or train.batch_size_per_device, or use \"1f1b\"");
  const int chunks = S * (interleaves ? static_cast<int>(config.chunks) : 1);
  if (pipeline.embeds_apart) pipeline.chunks.push_back({0, model.embedding_layer() + 1, S - 1});
  std::vector<int> ends;
  problems.attempt([&] { ends = chunk_ends(config.device_map, model, seq_len, S, chunks); });
  problems.raise();
  int first = pipeline.embeds_apart ? model.embedding_layer() + 1 : 0;
  for (const int end : ends) {
    pipeline.chunks.push_back(
        {first, end, static_cast<int>(std::ssize(pipeline.chunks) - (pipeline.embeds_apart ? 1 : 0)) % S});
    first = end;
  }
  return pipeline;
}

std::vector<Action> actions_of(const Pipeline& pipeline, int stage, int64_t micro_steps, int first_trained) {
  std::vector<Action> actions = actions_without_embedding(pipeline, stage, micro_steps);
  if (pipeline.embeds_apart && stage == pipeline.stages - 1)
    actions = with_embedding(pipeline, actions, micro_steps);
  std::erase_if(actions,
                [&](const Action& a) { return !a.forward && !pipeline.trains(a.chunk, first_trained); });
  return actions;
}

int in_flight(const std::vector<Action>& actions, int chunk) {
  const bool returns = std::any_of(actions.begin(), actions.end(),
                                   [&](const Action& a) { return a.chunk == chunk && !a.forward; });
  int now = 0, most = 0;
  for (const Action& action : actions) {
    if (action.chunk != chunk) continue;
    if (action.forward) most = std::max(most, ++now);
    if (!action.forward || !returns) --now;
  }
  return most;
}

int partly_done(const std::vector<Action>& actions, const std::vector<int>& chunks) {
  const std::set<int> counted(chunks.begin(), chunks.end());
  std::map<int64_t, size_t> done;  // backward passes done, by micro-batch
  size_t most = 1;
  for (const Action& action : actions) {
    if (action.forward || !counted.contains(action.chunk)) continue;
    ++done[action.micro];
    most = std::max(most, done.size());
    if (done[action.micro] == counted.size()) done.erase(action.micro);
  }
  return static_cast<int>(most);
}

Schedule schedule_of(const Pipeline& pipeline, int stage, int64_t micro_steps, int first_trained) {
  const int last = pipeline.chunks.back().end - 1;
  Schedule schedule{
      .actions = actions_of(pipeline, stage, micro_steps, first_trained), .visits = {}, .first_visit = {}};
  std::vector<Visit>& visits = schedule.visits;
  for (const Action& action : schedule.actions) {
    const Chunk& chunk = pipeline.chunks[static_cast<size_t>(action.chunk)];
    schedule.first_visit.push_back(visits.size());
    if (action.forward)
      for (int layer = chunk.first; layer < std::min(chunk.end, last); ++layer)
        visits.push_back({layer, true});
    else
      for (int layer = chunk.end - 1; layer >= std::max(chunk.first, first_trained); --layer)
        visits.push_back({layer, false});
    // Units stay gathered between the layers of a pass, and from a forward pass to a backward pass right
    // after it.
    const size_t first = schedule.first_visit.back();
    for (size_t i = std::max<size_t>(first, 1); i < visits.size(); ++i)
      if (i > first || visits[i - 1].forward) visits[i - 1].keep_for = visits[i].layer;
  }
  schedule.first_visit.push_back(visits.size());
  return schedule;
}

double bubble_of(const Pipeline& pipeline, int64_t micro_steps) {
  if (pipeline.schedule == PipelineSchedule::sequential) return 1 - 1.0 / pipeline.stages;
  const auto idle = static_cast<double>(pipeline.stages - 1);
  const double chunks =
      static_cast<double>(pipeline.last_chunk() + (pipeline.embeds_apart ? 0 : 1)) / pipeline.stages;
  return idle / (static_cast<double>(micro_steps) * chunks + idle);
}

}  // namespace flatshard
