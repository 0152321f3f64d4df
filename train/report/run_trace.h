#pragma once
// The trace of a run: records the steps of run.trace on all ranks and writes trace.json and overlap.svg as
// soon as the last of them has ended. Recording ends early if another step would make trace.json larger than
// kMostTraceBytes (trace_file.h).

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "comm/clock.h"
#include "comm/world.h"
#include "runtime/trace.h"
#include "train/config/trace_steps.h"

namespace flatshard {

class RunTrace {
 public:
  // Collective. Writes into `folder`; without steps it does nothing. An Error if the run ends before them.
  RunTrace(const std::optional<TraceSteps>& steps, std::string folder, int64_t total_steps, World& world);

  // A predicted step, which the picture shows below the real one; needed on rank 0 only.
  void compare_with(StepTimeline predicted) { predicted_ = std::move(predicted); }
  // The trace for the streams to record into; null without steps.
  Trace* trace() { return steps_ ? &trace_ : nullptr; }
  // Call them around every step, with its data_step.
  void begin_step(int64_t data_step);
  void end_step(int64_t data_step);
  // Call it after everything that follows a step, such as an evaluation. Collective while recording. If it
  // has written the trace, it returns a line for the user, on rank 0.
  std::string between_steps();
  // Call it after the last step of the run, which may have ended within the steps to trace. It returns the
  // same line.
  std::string finish();

 private:
  bool is_recording() const { return steps_ && !written_ && trace_.recording(); }
  bool has_space_for_another();
  std::string write();

  std::optional<TraceSteps> steps_;
  std::string folder_;
  World& world_;
  Trace trace_;
  std::optional<StepTimeline> predicted_;
  ClockOffset clock_;
  std::optional<int> row_;  // row of the steps in the trace
  Trace::Clock::time_point begin_{};
  int64_t first_ = 0, last_ = 0;  // first and last recorded steps
  bool written_ = false;
  double bytes_ = 0, largest_step_ = 0;  // sizes on all ranks, so far and of the largest step
};

}  // namespace flatshard
