#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <iomanip>
#include <optional>
#include <ostream>
#include <utility>

#include "runtime/log.h"
#include "runtime/parallel.h"
#include "runtime/reason.h"
#include "runtime/text.h"
#include "train/agreement.h"
#include "train/models/last_run.h"
#include "train/report/first_step.h"
#include "train/report/log_history.h"
#include "train/report/plan_text.h"
#include "train/report/progress.h"
#include "train/report/untrained_tokens.h"
#include "train/save/checkpoint_writer.h"
#include "train/save/checkpoints.h"
#include "train/save/initial_weights.h"
#include "train/save/run_folder.h"
#include "train/step/bandwidth.h"
#include "train/step/evaluation.h"
#include "train/step/loss_scale.h"
#include "train/step/peak.h"
#include "train/step/training_runtime.h"
#include "train/step/weights.h"
#include "train/stop_request.h"
#include "train/text/run_data.h"
#include "train/token_inputs.h"
#include "train/traces/run_trace.h"
#include "train/watch/run_log.h"

namespace flatshard {
namespace {

constexpr int kMaxConsecutiveSkips = 100;

class Trainer {
 public:
  Trainer(const LoadedConfig& loaded, World& world, std::ostream& out, bool terminal);
  void run();
  // Completes the checkpoint being written, if any, and the report, when the run fails.
  void finish_failing(const std::string& reason) {
    writer_.finish_failing();
    if (log_) log_->end_failing(reason);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void print_header();
  StepMetrics step();
  void report_first_step();
  double sum_of_lanes(std::span<const double> losses);
  void evaluate(StepMetrics& m);
  void note_stop(int rank, double signal);
  void check_result(const StepMetrics& m, bool finite);
  // After a step: whether it ends a period of so many steps, or an epoch, or the run.
  bool due(int64_t every, bool each_epoch) const {
    const bool ends_epoch = data_step_ % train_.data.steps_per_epoch() == 0;
    return (every > 0 && completed_ % every == 0) || (each_epoch && ends_epoch) ||
           ((every > 0 || each_epoch) && completed_ == total_steps_);
  }
  void print_hash();
  TrainState state_template();
  std::optional<TrainState> find_checkpoint();
  void begin();
  TrainState state(const StepMetrics& m);
  void save(StepMetrics& m, bool begins);
  void finish();
  bool is_leader() const { return world_.rank() == 0; }

  LoadedConfig loaded_;
  World& world_;
  std::ostream& out_;
  RunSetup setup_;
  RunInputs inputs_;
  RunData train_;
  std::optional<RunData> eval_;
  int64_t total_steps_, eval_every_, save_every_;
  RunFolder folder_;
  Checkpoints checkpoints_;
  std::vector<std::string> changes_;  // relative to the run that wrote the checkpoint
  std::optional<TrainState> resumed_;
  InitialWeights initial_;    // until they are loaded
  ModelDocuments documents_;  // for checkpoints and model/
  RunTrace trace_;
  TrainingRuntime runtime_;
  LossScale loss_scale_;
  double peak_ = 0;
  Progress progress_;
  CheckpointWriter writer_;
  std::optional<RunLog> log_;         // of the leader
  std::vector<StepMetrics> history_;  // as stored in checkpoints

  int64_t data_step_ = 0, completed_ = 0, tokens_ = 0, skipped_in_a_row_ = 0;
  bool threads_idle_ = false;  // no rank's saver was busy in the last step
  StopRequest stop_request_;
  // The first stop request; the same on all ranks.
  struct Stop {
    int rank = 0, signal = 0;
  } stop_;
};

Trainer::Trainer(const LoadedConfig& loaded, World& world, std::ostream& out, bool terminal)
    : loaded_(loaded),
      world_(world),
      out_(out),
      setup_(set_up(with_token_files(loaded.config, world, terminal ? &out : nullptr), world)),
      inputs_(agree_on_inputs(world, setup_)),
      train_(setup_.config.data.train, setup_, false),
      total_steps_(total_steps(setup_.config, train_.data.steps_per_epoch())),
      eval_every_(steps_between(setup_.config.train.eval_every, total_steps_, "train.eval_every")),
      save_every_(steps_between(setup_.config.checkpoint.save_every, total_steps_, "checkpoint.save_every")),
      folder_(setup_.config.run.dir),
      checkpoints_(setup_, world),
      resumed_(find_checkpoint()),
      initial_(open_initial_weights(setup_, world)),
      trace_(setup_.trace, setup_.config.run.dir, total_steps_, world),
      runtime_(setup_, world,
               {.order = world.size() > 1 ? StreamOrder::concurrent : StreamOrder::in_order,
                .trace = trace_.trace()}),
      loss_scale_(setup_.compute, setup_.config.precision.loss_scale),
      progress_(total_steps_, terminal, out),
      writer_(setup_, checkpoints_, runtime_, world, progress_) {
  if (!setup_.config.data.eval.empty()) eval_.emplace(setup_.config.data.eval, setup_, true);
}

void Trainer::print_header() {
  peak_ = matrix_peak(world_, setup_.device, setup_.compute, setup_.config.precision.tf32);
  const RunPlan& plan = runtime_.plan();
  const Bandwidth bandwidth = bandwidth_of(setup_, world_);
  if (!is_leader()) return;
  out_ << "device    " << setup_.device << ", " << counted(world_.size(), "rank") << " x "
       << counted(thread_count(), "thread") << ", measured matrix peak " << std::lround(peak_ * 1e-9)
       << " GFLOP/s\n"
       << describe_setup(setup_, plan) << initial_.lines << "data      " << train_.describe() << '\n'
       << "run       " << with_commas(total_steps_) << " steps, " << describe_flops(plan.flops)
       << describe_units(plan.units) << describe_exchange(setup_, plan.units, plan.flops, peak_, bandwidth)
       << "memory    of rank 0, exact:\n"
       << describe_memory(plan.memory);
  if (resumed_) out_ << describe_resumed(checkpoints_.source().string(), *resumed_, changes_);
  out_ << std::flush;
}

// The part of the state that is the same in every checkpoint of this run.
TrainState Trainer::state_template() {
  return {.lane_sequences = setup_.batching.lane_sequences,
          .data_tokens = train_.file.size(),
          .data_documents = train_.file.document_count(),
          .data_fingerprint = inputs_.train,
          .eval_fingerprint = inputs_.eval,
          .base_fingerprint = inputs_.base,
          .ranks = world_.size(),
          .config = config_values(loaded_.config)};
}

// The state of the checkpoint to resume from, if any; an Error if the run cannot resume from it.
std::optional<TrainState> Trainer::find_checkpoint() {
  folder_.hold(world_);
  std::optional<TrainState> found = checkpoints_.begin(setup_.config.run.resume);
  if (!found) return {};
  try {
    changes_ = check_continues(*found, state_template());
    check(found->step <= total_steps_, "it is at step ", found->step, ", the run has ", total_steps_);
  } catch (const Error& error) {
    fail(str(checkpoints_.source().string(), ": cannot resume from it: ", error.what()), error.where);
  }
  return found;
}

// Initializes the parameters or loads the checkpoint, then creates the run folder and its metrics file.
void Trainer::begin() {
  documents_ = model_documents(setup_, checkpoints_.source().string(), world_);
  checkpoints_.plan(runtime_.engine(), documents_);
  if (is_leader() && !resumed_ && initial_.weights && !initial_.adapter)  // an adapter may have the rows
    warn_of_untrained_tokens(train_.file, *initial_.weights, setup_);
  // Checkpoints of adapters do not contain the frozen weights.
  if (!resumed_ || setup_.has_adapters()) {
    runtime_.engine().initialize(initial_values(setup_, initial_));
    initial_ = {};
  }
  if (resumed_) {
    checkpoints_.load(runtime_.engine());
    completed_ = resumed_->step;
    data_step_ = resumed_->data_step;
    tokens_ = resumed_->tokens;
    skipped_in_a_row_ = resumed_->skipped_in_a_row;
    loss_scale_.restore(resumed_->loss_scale, resumed_->good_steps);
    history_ = resumed_->log_history;
  }
  if (!is_leader()) return;
  std::vector<StepMetrics> lines;
  if (resumed_)
    lines = lines_before(resumed_->log_history, resumed_->data_step,
                         checkpoints_.source().parent_path() / "metrics.jsonl");
  const std::string config = to_toml(loaded_.config);
  folder_.begin(config);
  log_.emplace(folder_.path(), config, total_steps_, lines, setup_.config.log.tensorboard);
}

void Trainer::run() {
  print_header();
  begin();
  while (completed_ < total_steps_ && !stop_.signal) {
    StepMetrics m = step();
    if (data_step_ == 1) report_first_step();
    const bool saves = !m.skipped && due(save_every_, setup_.config.checkpoint.save_each_epoch);
    // Every scheduled checkpoint is evaluated, so that the best one is known, unless the run is to stop.
    const bool evaluates = due(eval_every_, setup_.config.train.eval_each_epoch) || saves;
    if (!m.skipped && eval_ && !stop_.signal && evaluates) evaluate(m);
    if (is_leader() && (completed_ % setup_.config.log.every == 0 || completed_ == total_steps_ ||
                        m.skipped || m.eval_loss || stop_.signal))
      progress_.step(m);
    save(m, saves || (stop_.signal && setup_.config.checkpoint.on_sigterm));
    if (is_leader()) log_->write(m);
    add_line(history_, m);
    if (const std::string written = trace_.between_steps(); !written.empty()) progress_.print(written);
    if (!m.skipped && setup_.config.run.hash_every > 0 && completed_ % setup_.config.run.hash_every == 0 &&
        completed_ < total_steps_ && !stop_.signal)
      print_hash();
  }
  finish();
}

StepMetrics Trainer::step() {
  world_.enter_step(completed_ + 1);
  const auto begin = Clock::now();
  trace_.begin_step(data_step_ + 1);
  const double scale = loss_scale_.value();
  const double lr = learning_rate(setup_.config.schedule, setup_.peak_lr(), total_steps_, completed_);
  const int64_t targets = train_.data.target_count(data_step_);
  StepMetrics m{.lr = lr};
  const double waited = runtime_.engine().waited_seconds();
  bool finite = true;
  if (targets > 0) {
    const StepResult r = runtime_.engine().step(train_.data, {.data_step = data_step_,
                                                              .update = completed_ + 1,
                                                              .lr = lr,
                                                              .loss_scale = scale,
                                                              .targets = targets});
    m.loss = sum_of_lanes(r.lane_losses) / scale;
    m.grad_norm = r.grad_norm;
    finite = r.finite;
  }
  m.skipped = targets == 0 || !finite;
  ++data_step_;
  trace_.end_step(data_step_);
  if (!m.skipped) ++completed_;
  check_result(m, finite);
  loss_scale_.update(finite);
  tokens_ += targets;

  m.step = completed_;
  m.data_step = data_step_;
  m.tokens = tokens_;
  m.step_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (is_leader()) log_->stamp(m);
  m.tokens_per_second = static_cast<double>(targets) / m.step_seconds;
  const double positions =
      static_cast<double>(setup_.batching.total_sequences * setup_.seq_len()) / m.step_seconds;
  if (train_.has_untrained_places()) m.all_tokens_per_second = positions;
  m.mfu = positions * runtime_.plan().flops.full / peak_;
  m.mfu_causal = positions * runtime_.plan().flops.causal / peak_;
  if (world_.size() > 1 && !setup_.device.is_cuda())  // a GPU waits without the host
    m.exposed_comm_seconds = runtime_.engine().waited_seconds() - waited;
  m.memory_bytes = memory_counters().live_bytes;
  if (loss_scale_.in_use()) m.loss_scale = scale;
  return m;
}

void Trainer::report_first_step() {
  FirstStep mine = first_step(setup_, world_.rank(), train_.data, runtime_.engine());
  std::string all;
  world_.collect([&] { return std::exchange(mine.brief, ""); },
                 [&](int, const std::string& text) { all += text; });
  if (is_leader() && setup_.config.log.step1) out_ << all << std::flush;
  world_.collect([&] { return std::exchange(mine.units, ""); },
                 [&](int, const std::string& text) { all += text; });
  if (is_leader()) warn_on_error([&] { folder_.write("step1.txt", all); });
}

// Sums in lane order, independent of which rank computed a lane. The same exchange carries each rank's stop
// request, so that all ranks stop after the same step, and whether it is still writing a checkpoint.
double Trainer::sum_of_lanes(std::span<const double> losses) {
  std::vector<double> mine(losses.begin(), losses.end());
  mine.push_back(stop_request_.signal());
  mine.push_back(writer_.busy());
  const std::vector<double> all = world_.all_gather(mine, "losses");
  std::vector<double> in_order(losses.size() * static_cast<size_t>(world_.size()));
  threads_idle_ = true;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const double* const values = &all[static_cast<size_t>(rank) * mine.size()];
    for (int64_t local = 0, lanes = setup_.batching.lanes; local < std::ssize(losses); ++local)
      in_order[static_cast<size_t>(
          lane_of(setup_.units, setup_.groups, rank, local / lanes, local % lanes))] = values[local];
    note_stop(rank, values[losses.size()]);
    if (values[losses.size() + 1] != 0) threads_idle_ = false;
  }
  double sum = 0;
  for (const double loss : in_order) sum += loss;
  return sum;
}

// Evaluates. A stop request on any rank abandons the evaluation, which then has no result.
void Trainer::evaluate(StepMetrics& m) {
  m.eval_loss = evaluation_loss(runtime_.engine(), eval_->data, setup_.config.data.eval, world_,
                                [&] { return stop_request_.signal() != 0; });
  const double mine = stop_request_.signal();
  const std::vector<double> all = world_.all_gather({&mine, 1}, "stop requests");
  for (int rank = 0; rank < world_.size(); ++rank) note_stop(rank, all[static_cast<size_t>(rank)]);
}

// Keeps the first request. Called with the same arguments on all ranks.
void Trainer::note_stop(int rank, double signal) {
  if (signal != 0 && !stop_.signal) stop_ = {rank, static_cast<int>(signal)};
}

// Every rank has the same numbers, so all of them fail or continue together.
void Trainer::check_result(const StepMetrics& m, bool finite) {
  skipped_in_a_row_ = m.skipped ? skipped_in_a_row_ + 1 : 0;
  const bool may_skip = loss_scale_.dynamic() || setup_.config.train.skip_nonfinite;
  const bool good = may_skip || (finite && std::isfinite(m.loss));
  if (good && skipped_in_a_row_ < kMaxConsecutiveSkips) return;
  check(good, "step ", completed_ + 1, ": the loss is ", m.loss, " and the gradient norm ", m.grad_norm,
        ", must be finite; lower optimizer.lr, or set train.skip_nonfinite = true");
  fail(str(kMaxConsecutiveSkips,
           " steps in a row were skipped for lack of targets or of finite gradients; check "
           "data.train, or lower optimizer.lr"));
}

void Trainer::print_hash() {
  const std::string hash = weights_hash(runtime_.engine());
  if (is_leader()) progress_.print(str("step ", completed_, " weights ", hash));
}

// After the step that measured `m`.
TrainState Trainer::state(const StepMetrics& m) {
  TrainState s = state_template();
  s.step = completed_;
  s.data_step = data_step_;
  s.tokens = tokens_;
  s.skipped_in_a_row = skipped_in_a_row_;
  s.loss_scale = loss_scale_.value();
  s.good_steps = loss_scale_.good_steps();
  s.eval_loss = m.eval_loss;
  s.log_history = history_;
  add_line(s.log_history, m);
  return s;
}

void Trainer::save(StepMetrics& m, bool begins) {
  CheckpointWriter::Work work{.last = completed_ == total_steps_ || stop_.signal != 0,
                              .threads_idle = std::exchange(threads_idle_, false)};
  if (begins) work.begin = [&] { return state(m); };
  writer_.between_steps(m, work);
}

void Trainer::finish() {
  const std::string result = setup_.has_adapters() ? "adapter" : "model";
  save_model(folder_.file(result), documents_, setup_.shard_bytes, runtime_.engine(), world_);
  const std::string traced = trace_.finish();
  const std::string hash = weights_hash(runtime_.engine());
  if (!is_leader()) return;
  progress_.finish();
  const std::string stopped_by =
      completed_ < total_steps_ ? str("rank ", stop_.rank, " received ", signal_name(stop_.signal)) : "";
  if (!stopped_by.empty())
    out_ << "stopped   after step " << with_commas(completed_) << " of " << with_commas(total_steps_) << ": "
         << stopped_by << '\n';
  if (!traced.empty()) out_ << traced << '\n';
  const std::string report = log_->end(stopped_by);
  if (!report.empty()) out_ << "report    " << report << '\n';
  note_last_run(folder_.path());
  out_ << std::left << std::setw(10) << result << folder_.file(result) << "\nweights " << hash << std::endl;
}

}  // namespace

void run_training(const LoadedConfig& loaded, World& world, std::ostream& out, bool terminal) {
  survive_closed_output();
  use_threads(loaded.config.run, world);
  Trainer trainer(loaded, world, out, terminal);
  try {
    trainer.run();
  } catch (const std::exception& error) {
    trainer.finish_failing(reason_of(error));
    // Other ranks, and this rank's own streams, may be blocked in a collective: end the job before the
    // destructors wait for them.
    if (world.size() > 1) world.end_all_ranks(printable(reason_of(error)));
    throw;
  }
}

}  // namespace flatshard
