#include "train/run/trainer.h"

#include <array>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <optional>
#include <ostream>
#include <utility>

#include "comm/watchdog.h"
#include "hub/last_run.h"
#include "runtime/log.h"
#include "runtime/parallel.h"
#include "runtime/reason.h"
#include "runtime/text.h"
#include "train/measure/bandwidth.h"
#include "train/report/failure_note.h"
#include "train/report/first_step.h"
#include "train/report/log_history.h"
#include "train/report/progress.h"
#include "train/report/run_log.h"
#include "train/report/run_trace.h"
#include "train/report/untrained_tokens.h"
#include "train/run/agreement.h"
#include "train/run/matrix_peak.h"
#include "train/run/preflight.h"
#include "train/run/run_header.h"
#include "train/run/stop_request.h"
#include "train/run/token_inputs.h"
#include "train/save/best_saves.h"
#include "train/save/checkpoint_writer.h"
#include "train/save/checkpoints.h"
#include "train/save/first_stop.h"
#include "train/save/initial_weights.h"
#include "train/save/loss_scale.h"
#include "train/save/run_folder.h"
#include "train/save/run_start.h"
#include "train/save/save_times.h"
#include "train/setup/run_data.h"
#include "train/step/evaluation.h"
#include "train/step/lane_losses.h"
#include "train/step/skipped_steps.h"
#include "train/step/training_runtime.h"
#include "train/step/weights.h"

namespace flatshard {
namespace {

std::string failure_of(int rank, const std::string& reason) { return str("[rank ", rank, "] ", reason); }

class Trainer {
 public:
  Trainer(const LoadedConfig& loaded, World& world, const RunOutput& output);
  bool run();  // whether it finished
  // Completes the checkpoint being written, if any, and the report, when the run fails.
  void finish_failing(const std::string& reason) {
    if (begun_)
      note_failure(folder_.file("run.log"), world_.size() == 1 ? reason : failure_of(world_.rank(), reason));
    writer_.finish_failing();
    if (log_) log_->end_failing(reason);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void print_header();
  StepMetrics step();
  void report_first_step();
  double sum_of_lanes(std::span<const double> losses);
  bool evaluate(StepMetrics& m);
  double next_rate() const {
    return learning_rate(setup_.config.schedule, setup_.peak_lr(), total_steps_, completed_);
  }
  void print_hash();
  TrainState state_template();
  RunStart find_start();
  void begin();
  TrainState state(const StepMetrics& m);
  void save(StepMetrics& m, bool begins, bool is_best);
  void finish();
  bool is_leader() const { return world_.rank() == 0; }

  LoadedConfig loaded_;
  World& world_;
  RunOutput output_;
  RunSetup setup_;
  RunInputs inputs_;
  RunData train_;
  std::optional<RunData> eval_;
  RunFolder folder_;
  Checkpoints checkpoints_;
  RunStart start_;
  int64_t total_steps_, completed_;
  StepPeriod evaluations_, saves_;
  BestSaves best_saves_;
  SaveClock save_clock_;
  InitialWeights initial_;    // until they are loaded
  ModelDocuments documents_;  // for checkpoints and model/
  RunTrace trace_;
  MatrixPeak peak_;
  TrainingRuntime runtime_;
  LossScale loss_scale_;
  Progress progress_;
  CheckpointWriter writer_;
  std::string header_;                // with all details, for run.log
  std::optional<RunLog> log_;         // of the leader
  std::vector<StepMetrics> history_;  // as stored in checkpoints

  int64_t data_step_ = 0, tokens_ = 0;
  SkippedSteps skipped_;
  bool begun_ = false;                                // run.log is that of this run
  bool save_is_late_ = false, threads_idle_ = false;  // in the last step; idle: no rank's saver was busy
  StopRequest stop_request_;
  FirstStop stop_;
};

Trainer::Trainer(const LoadedConfig& loaded, World& world, const RunOutput& output)
    : loaded_(loaded),
      world_(world),
      output_(output),
      setup_(set_up(with_token_files(loaded.config, world, output.terminal ? &output.out : nullptr), world)),
      inputs_(agree_on_inputs(world, setup_)),
      train_(setup_.config.data.train, setup_, false),
      folder_(setup_.config.run.dir),
      checkpoints_(setup_, world, loaded.overwrite),
      start_(find_start()),
      total_steps_(start_.total_steps),
      completed_(start_.step),
      evaluations_{steps_between(setup_.config.train.eval_every, total_steps_, "train.eval_every"),
                   setup_.config.train.eval_each_epoch},
      saves_{
          steps_between(save_interval(setup_.config.checkpoint).steps, total_steps_, "checkpoint.save_every"),
          setup_.config.checkpoint.save_each_epoch},
      best_saves_(setup_.config.checkpoint, total_steps_),
      save_clock_(save_interval(setup_.config.checkpoint).seconds),
      initial_(open_initial_weights(setup_, world)),
      trace_(setup_.trace, setup_.config.run.dir, total_steps_, world),
      peak_(find_matrix_peak(setup_, world)),
      runtime_(setup_, world,
               {.order = world.size() > 1 ? StreamOrder::concurrent : StreamOrder::in_order,
                .trace = trace_.trace()}),
      loss_scale_(setup_.compute, setup_.config.precision.loss_scale),
      progress_(total_steps_, output.terminal, output.out),
      writer_(setup_, checkpoints_, runtime_, world, progress_),
      stop_request_(is_leader() && &output.out == &std::cout ? stop_announcement(output.terminal) : "") {
  if (!setup_.config.data.eval.empty()) eval_.emplace(setup_.config.data.eval, setup_, true);
}

void Trainer::print_header() {
  const Bandwidth bandwidth = bandwidth_of(setup_, world_);
  const std::string hosts = preflight(setup_, world_, output_.verbose);
  if (!is_leader()) return;
  const std::string resumed = start_.resumed ? describe_resumed(checkpoints_.source().string(),
                                                                *start_.resumed, start_.changes, next_rate())
                                             : "";
  const RunHeader header{setup_,           runtime_.plan(), peak_,          bandwidth,         total_steps_,
                         loaded_.replaced, hosts,           initial_.lines, train_.describe(), resumed};
  header_ = describe_run(header, true);
  output_.out << (output_.verbose ? header_ : describe_run(header, false)) << std::flush;
}

// The part of the state that is the same in every checkpoint of this run.
TrainState Trainer::state_template() {
  return {.lane_sequences = setup_.batching.lane_size(),
          .data_tokens = train_.file.size(),
          .data_documents = train_.file.document_count(),
          .data_fingerprint = inputs_.train,
          .eval_fingerprint = inputs_.eval,
          .base_fingerprint = inputs_.base,
          .ranks = world_.size(),
          .config = config_values(loaded_.config)};
}

// The checkpoint to resume from, if any, and where the run continues; an Error if it cannot.
RunStart Trainer::find_start() {
  folder_.hold(world_);
  std::optional<TrainState> found = checkpoints_.begin(setup_.config.run.resume);
  return start_of(std::move(found), checkpoints_.source().string(), state_template(), setup_.config,
                  train_.data);
}

// Initializes the parameters or loads the checkpoint, then creates the run folder and its metrics file.
void Trainer::begin() {
  documents_ = model_documents(setup_, checkpoints_.source().string(), inputs_.base.value_or(""), world_);
  checkpoints_.plan(runtime_.engine(), documents_);
  if (is_leader() && !start_.resumed && initial_.weights &&
      !initial_.adapter)  // an adapter may have the rows
    warn_of_untrained_tokens(train_.file, *initial_.weights, setup_);
  // Checkpoints of adapters do not contain the frozen weights.
  if (!start_.resumed || setup_.has_adapters()) {
    runtime_.engine().initialize(initial_values(setup_, initial_));
    initial_ = {};
  }
  if (start_.resumed) {
    checkpoints_.load(runtime_.engine());
    data_step_ = start_.resumed->data_step;
    tokens_ = start_.resumed->tokens;
    skipped_.restore(start_.resumed->skipped_in_a_row);
    loss_scale_.restore(start_.resumed->loss_scale, start_.resumed->good_steps);
    history_ = start_.resumed->log_history;
  }
  if (!is_leader()) return;
  std::vector<StepMetrics> lines;
  if (start_.resumed)
    lines = lines_before(start_.resumed->log_history, start_.resumed->data_step,
                         checkpoints_.source().parent_path() / "metrics.jsonl");
  const std::string config = history_comment(start_.history) + to_toml(loaded_.config);
  checkpoints_.remove_overwritten();
  folder_.begin(config);
  log_.emplace(folder_.path(), config, total_steps_, lines, setup_.config.log.tensorboard);
  progress_.open_log(folder_.file("run.log"), header_, start_.resumed.has_value());
}

bool Trainer::run() {
  print_header();
  begin();
  begun_ = true;
  if (Watchdog* const watchdog = world_.watchdog())
    watchdog->on_giving_up([log = folder_.file("run.log"), rank = world_.rank()](const std::string& reason) {
      note_failure(log, failure_of(rank, reason));
    });
  while (completed_ < total_steps_ && !stop_.signal) {
    StepMetrics m = step();
    if (data_step_ == 1) report_first_step();
    const bool is_last = completed_ == total_steps_, ends_epoch = train_.data.ends_epoch(data_step_);
    const bool saves = !m.skipped && saves_.is_due(completed_, total_steps_, ends_epoch),
               by_clock = !m.skipped && (save_is_late_ || (save_clock_.is_used() && is_last));
    // A checkpoint that a step schedules is evaluated, so that the best one is known, unless the run is to
    // stop.
    const bool evaluates = evaluations_.is_due(completed_, total_steps_, ends_epoch) || saves;
    const bool is_best = !m.skipped && eval_ && !stop_.signal && evaluates && evaluate(m);
    if (is_leader() && (completed_ % setup_.config.log.every == 0 || completed_ == total_steps_ ||
                        m.skipped || m.eval_loss || stop_.signal))
      progress_.step(m);
    save(m, saves || by_clock || is_best || (stop_.signal && setup_.config.checkpoint.on_sigterm), is_best);
    if (is_leader()) log_->write(m);
    add_line(history_, m);
    if (const std::string written = trace_.between_steps(); !written.empty()) progress_.print(written);
    if (!m.skipped && setup_.config.run.hash_every > 0 && completed_ % setup_.config.run.hash_every == 0 &&
        completed_ < total_steps_ && !stop_.signal)
      print_hash();
  }
  finish();
  return completed_ == total_steps_;
}

StepMetrics Trainer::step() {
  world_.enter_step(completed_ + 1);
  const auto begin = Clock::now();
  trace_.begin_step(data_step_ + 1);
  const double scale = loss_scale_.value();
  const double lr = next_rate();
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
  skipped_.add({.step = completed_ + 1,
                .loss = m.loss,
                .grad_norm = m.grad_norm,
                .finite = finite,
                .skipped = m.skipped},
               loss_scale_.dynamic() || setup_.config.train.skip_nonfinite);
  loss_scale_.update(finite);
  tokens_ += targets;

  m.step = completed_;
  m.data_step = data_step_;
  m.tokens = tokens_;
  m.step_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (is_leader()) log_->stamp(m);
  m.tokens_per_second = static_cast<double>(targets) / m.step_seconds;
  const int64_t computed = targets > 0 ? setup_.batching.total_sequences * setup_.seq_len() : 0;
  const double positions = static_cast<double>(computed) / m.step_seconds;
  if (train_.has_untrained_places()) m.all_tokens_per_second = positions;
  if (const std::string lines = peak_.set_mfu(m, positions, runtime_.plan().flops);
      is_leader() && !lines.empty())
    progress_.print(lines);
  if (world_.size() > 1 && !setup_.device.is_cuda())  // a GPU waits without the host
    m.exposed_comm_seconds = runtime_.engine().waited_seconds() - waited;
  m.memory_bytes = memory_counters().live_bytes;
  if (loss_scale_.in_use()) m.loss_scale = scale;
  return m;
}

void Trainer::report_first_step() {
  const FirstStep all =
      of_all_ranks(first_step(setup_, world_.rank(), train_.data, runtime_.engine()), world_);
  if (!is_leader()) return;
  if (setup_.config.log.step1) progress_.print(all.brief.substr(0, all.brief.rfind('\n')));
  warn_on_error([&] { folder_.write("step1.txt", all.brief + all.units); });
}

// The loss of the step. The same exchange carries each rank's stop request, so that all ranks stop after the
// same step, whether it is still writing a checkpoint, and whether one is due by its clock.
double Trainer::sum_of_lanes(std::span<const double> losses) {
  const std::array<double, 3> mine{static_cast<double>(stop_request_.signal()),
                                   static_cast<double>(writer_.busy()),
                                   static_cast<double>(save_clock_.has_run_out())};
  const GatheredLosses all = gather_losses(world_, setup_, losses, mine);
  save_is_late_ = all.notes.front()[2] != 0;
  threads_idle_ = true;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const std::vector<double>& notes = all.notes[static_cast<size_t>(rank)];
    stop_.note(rank, notes[0]);
    threads_idle_ = threads_idle_ && notes[1] == 0;
  }
  return all.sum;
}

// Evaluates, and returns whether to save the result as the best. A stop request on any rank abandons the
// evaluation, which then has no result.
bool Trainer::evaluate(StepMetrics& m) {
  m.eval_loss = evaluation_loss(runtime_.engine(), eval_->data, setup_.config.data.eval, world_,
                                [&] { return stop_request_.signal() != 0; });
  const std::array<double, 2> mine{static_cast<double>(stop_request_.signal()),
                                   static_cast<double>(best_saves_.may_save(completed_))};
  const std::vector<double> all = world_.all_gather(mine, "stop requests");
  for (int rank = 0; rank < world_.size(); ++rank) stop_.note(rank, all[2 * static_cast<size_t>(rank)]);
  return all[1] != 0 && is_new_best(m.eval_loss, writer_.best());
}

void Trainer::print_hash() {
  const std::string hash = weights_hash(runtime_.engine(), world_);
  if (is_leader()) progress_.print(str("step ", completed_, " weights ", hash));
}

// After the step that measured `m`.
TrainState Trainer::state(const StepMetrics& m) {
  TrainState s = state_template();
  s.step = completed_;
  s.data_step = data_step_;
  s.tokens = tokens_;
  const DataPosition position = train_.data.position(data_step_);
  s.data_epoch = position.epoch;
  s.data_sequence = position.sequence;
  s.changes = start_.history;
  s.skipped_in_a_row = skipped_.in_a_row();
  s.loss_scale = loss_scale_.value();
  s.good_steps = loss_scale_.good_steps();
  s.eval_loss = m.eval_loss;
  s.log_history = history_;
  add_line(s.log_history, m);
  return s;
}

void Trainer::save(StepMetrics& m, bool begins, bool is_best) {
  CheckpointWriter::Work work{.last = completed_ == total_steps_ || stop_.signal != 0,
                              .threads_idle = std::exchange(threads_idle_, false)};
  if (begins) {
    save_clock_.restart();
    work.begin = [&] { return state(m); };
  }
  writer_.between_steps(m, work);
  if (is_best) best_saves_.saved(completed_, m.save_seconds.value_or(0));
}

void Trainer::finish() {
  const std::string result = setup_.has_adapters() ? "adapter" : "model";
  save_model(folder_.file(result), documents_, setup_.shard_bytes, runtime_.engine(), world_);
  const std::string traced = trace_.finish();
  const std::string hash = weights_hash(runtime_.engine(), world_);
  if (!is_leader()) return;
  const std::string stopped_by =
      completed_ < total_steps_ ? str("rank ", stop_.rank, " received ", signal_name(stop_.signal)) : "";
  std::string end = stopped_by.empty() ? ""
                                       : str("stopped   after step ", with_commas(completed_), " of ",
                                             with_commas(total_steps_), ": ", stopped_by, '\n');
  end += describe_best(history_, writer_.best(), folder_.path());
  if (!traced.empty()) end += traced + '\n';
  const std::string report = log_->end(stopped_by);
  if (!report.empty()) end += "report    " + report + '\n';
  note_last_run(folder_.path());
  progress_.print(str(end, std::left, std::setw(10), result, folder_.file(result), "\nweights ", hash));
}

}  // namespace

bool run_training(const LoadedConfig& loaded, World& world, const RunOutput& output) {
  survive_closed_output();
  use_threads(loaded.config.run, world);
  Trainer trainer(loaded, world, output);
  try {
    return trainer.run();
  } catch (const std::exception& error) {
    trainer.finish_failing(report_of(error));
    // Other ranks, and this rank's own streams, may be blocked in a collective: end the job before the
    // destructors wait for them.
    if (world.size() > 1) world.end_all_ranks(report_of(error));
    throw;
  }
}

}  // namespace flatshard
