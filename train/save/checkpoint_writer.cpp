#include "train/save/checkpoint_writer.h"

#include <chrono>

#include "comm/launch.h"
#include "runtime/log.h"
#include "runtime/text.h"
#include "train/save/save_times.h"

namespace flatshard {
namespace {

// The time that a failing rank waits for the others to fail. Ranks that hit the same error do so within one
// step's skew.
constexpr std::chrono::seconds kForOthers{10};

}  // namespace

CheckpointWriter::CheckpointWriter(const RunSetup& setup, Checkpoints& checkpoints, TrainingRuntime& runtime,
                                   World& world, Progress& progress)
    : setup_(setup),
      staged_(runtime.staging() != nullptr),
      world_(world),
      progress_(progress),
      checkpoints_(checkpoints),
      saver_(checkpoints, runtime.engine(), runtime.staging(), world),
      seconds_until_killed_(seconds_until_killed()) {}

void CheckpointWriter::between_steps(StepMetrics& m, const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  if (!work.last) warn_if_killed_too_soon(m);
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

std::string CheckpointWriter::costs() const {
  const std::chrono::duration<double> run = std::chrono::steady_clock::now() - begin_;
  return describe_pauses(saves_, paused_seconds_, run.count());
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
  ++saves_;
  paused_seconds_ += saved->paused;
  m.saved_step = saved->step;
  m.saved_bytes = saved->bytes;
  m.saved_seconds = saved->seconds;
  if (world_.rank() == 0)
    progress_.print(str("saved     ", setup_.config.run.dir, "/step-", saved->step, ": ",
                        human_bytes(saved->bytes), ", written in ", human_seconds(saved->seconds),
                        "; training paused for ", human_seconds(saved->paused)));
}

void CheckpointWriter::warn_if_killed_too_soon(const StepMetrics& m) {
  if (!seconds_until_killed_ || !setup_.config.checkpoint.on_sigterm || world_.rank() != 0) return;
  constexpr double kDiskBytesPerSecond = 1e9;
  const double save = static_cast<double>(checkpoints_.bytes()) / kDiskBytesPerSecond,
               needed = m.step_seconds + m.saved_seconds.value_or(save);
  if (needed <= *seconds_until_killed_) return;
  progress_.print(str("warning   Ctrl-C loses steps: mpirun kills its ranks after ",
                      human_seconds(*seconds_until_killed_), ", a step and a save take ",
                      human_seconds(needed), "; start with train --ranks ", world_.size()));
  seconds_until_killed_.reset();
}

void CheckpointWriter::handle_error(const std::function<void()>& part) {
  try {
    part();
  } catch (const Error& error) {
    if (setup_.config.checkpoint.on_error == OnSaveError::stop) throw;
    if (world_.rank() == 0) log_warning(error.what());
  }
}

}  // namespace flatshard
