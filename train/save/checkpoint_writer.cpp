#include "train/save/checkpoint_writer.h"

#include <chrono>

#include "runtime/log.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// How long a failing rank waits for the others to fail. Ranks that hit the same error do so within one step's
// skew.
constexpr std::chrono::seconds kForOthers{10};

}  // namespace

CheckpointWriter::CheckpointWriter(const RunSetup& setup, Checkpoints& checkpoints, TrainingRuntime& runtime,
                                   World& world, Progress& progress)
    : setup_(setup),
      staged_(runtime.staging() != nullptr),
      world_(world),
      progress_(progress),
      saver_(checkpoints, runtime.engine(), runtime.staging(), world) {}

void CheckpointWriter::between_steps(StepMetrics& m, const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  if (work.begin) {
    handle_error([&] { tell(saver_.finish(), m); });
    handle_error([&] { saver_.begin(work.begin()); });
  } else if (!saver_.in_flight()) {
    return;
  }
  if (!staged_ || work.last)
    handle_error([&] { tell(saver_.finish(), m); });
  else if (!work.begin && work.threads_idle)
    handle_error([&] { tell(saver_.advance(), m); });
  m.save_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void CheckpointWriter::finish_failing() {
  if (!saver_.in_flight()) return;
  warn_on_error([&] {
    check(world_.all_arrive(kForOthers), "the checkpoint in flight is lost: not all ranks failed within ",
          kForOthers.count(), " s of this one, and the others cannot finish writing");
    StepMetrics none;
    tell(saver_.finish(), none);
  });
}

void CheckpointWriter::tell(const std::optional<Saver::Saved>& saved, StepMetrics& m) {
  if (!saved) return;
  m.saved_step = saved->step;
  m.saved_bytes = saved->bytes;
  m.saved_seconds = saved->seconds;
  if (world_.rank() == 0)
    progress_.print(str("saved     ", setup_.config.run.dir, "/step-", saved->step, ": ",
                        human_bytes(saved->bytes), ", written in ", human_seconds(saved->seconds),
                        "; training paused for ", human_seconds(saved->paused)));
}

void CheckpointWriter::handle_error(const std::function<void()>& part) {
  try {
    part();
  } catch (const Error& error) {
    if (setup_.config.checkpoint.on_error == "stop") throw;
    if (world_.rank() == 0) log_warning(error.what());
  }
}

}  // namespace flatshard
