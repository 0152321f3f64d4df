#include "train/run/trainer.h"

#include <array>
#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <numeric>
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
#include "train/measure/kernel_choice.h"
#include "train/plan/saved_plan.h"
#include "train/report/failure_note.h"
#include "train/report/first_step.h"
#include "train/report/log_history.h"
#include "train/report/progress.h"
#include "train/report/run_log.h"
#include "train/report/run_trace.h"
#include "train/report/untrained_tokens.h"
#include "train/run/matrix_peak.h"
#include "train/run/preflight.h"
#include "train/run/reference.h"
#include "train/run/run_header.h"
#include "train/run/run_inputs.h"
#include "train/run/run_samples.h"
#include "train/run/step_prediction.h"
#include "train/run/stop_request.h"
#include "train/save/checkpoint_writer.h"
#include "train/save/checkpoints.h"
#include "train/save/early_stop.h"
#include "train/save/initial_weights.h"
#include "train/save/run_folder.h"
#include "train/save/run_start.h"
#include "train/save/save_times.h"
#include "train/step/finite_steps.h"
#include "train/step/losses.h"
#include "train/step/training_runtime.h"
#include "train/step/weights.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The progress of a run, which its checkpoints store beside the weights.
struct RunStatus {
  // The status of a run that begins, or resumes from `start`; `now` describes the run.
  RunStatus(const RunSetup& setup, const RunStart& start, const TrainState& now)
      : loss_scale(setup.compute, setup.config.precision.loss_scale),
        early_stop(setup.config.train.stop_after_no_improvement) {
    if (start.resumed) restore(*start.resumed, now);
  }

  void restore(const TrainState& saved, const TrainState& now) {
    completed = saved.step;
    data_step = saved.data_step;
    tokens = saved.tokens;
    skipped.restore(saved.skipped_in_a_row);
    loss_scale.restore(saved.loss_scale, saved.good_steps);
    early_stop.restore(saved, now);
    history = saved.log_history;
  }
  void store(TrainState& s) const {
    s.step = completed;
    s.data_step = data_step;
    s.tokens = tokens;
    s.skipped_in_a_row = skipped.in_a_row();
    s.loss_scale = loss_scale.value();
    s.good_steps = loss_scale.good_steps();
    early_stop.store(s);
    s.log_history = history;
  }

  int64_t completed = 0, data_step = 0, tokens = 0;  // optimizer steps, data steps, target tokens
  LossScale loss_scale;
  SkippedSteps skipped{};
  EarlyStop early_stop;
  std::vector<StepMetrics> history{};
};

std::string failure_of(int rank, const std::string& reason) { return str("[rank ", rank, "] ", reason); }

double next_rate(const RunSetup& setup, const RunStart& start, int64_t completed) {
  return learning_rate(setup.config.schedule, setup.peak_lr(), start.total_steps, completed);
}

void set_positions(std::vector<TrainState::Source>& sources, const std::vector<SourcePosition>& positions) {
  for (size_t i = 0; i < sources.size(); ++i) sources[i].position = positions[i];
}

// The counts of a step, by file: its targets, and the items that the mean of its loss is over; and its
// answers.
struct StepCounts {
  StepCounts(const AnswerLoss& loss, const Data& data, int64_t data_step) {
    if (!loss.is_used()) {
      mean_over = targets = data.target_counts(data_step);
      return;
    }
    for (const AnswerCounts& of : data.answer_counts(data_step)) {
      targets.push_back(of.tokens);
      mean_over.push_back(loss.is_over_tokens() ? of.tokens : of.examples);
      answers += of;
    }
  }
  std::vector<int64_t> targets{}, mean_over{};
  AnswerCounts answers{};  // answers of all files
};

std::optional<std::string> joined(const std::vector<std::string>& prints) {
  std::optional<std::string> text;
  for (const std::string& print : prints) text = text ? str(*text, "; ", print) : print;
  return text;
}

TrainState state_of_run(const RunSetup& setup, const RunInputs& inputs, const World& world) {
  const InputPrints& prints = inputs.prints;
  const std::string products = bf16_products_of(setup);
  Config config = setup.config;
  std::vector<TrainState::Source> sources;
  for (const std::string& print : prints.train)
    if (prints.train.size() > 1) sources.push_back({.fingerprint = print});
  return {.sources = sources,
          .lane_sequences = setup.batching.lane_size(),
          .data_tokens = inputs.train.token_count(),
          .data_documents = inputs.train.document_count(),
          .data_fingerprint = joined(prints.train),
          .eval_fingerprint = joined(prints.eval),
          .base_fingerprint = prints.base,
          .bf16_products = products.empty() ? std::nullopt : std::optional(products),
          .ranks = world.size(),
          .config = config_values(config)};
}

// A run: its parts, made in this order, and the loop over its steps.
class Trainer {
 public:
  Trainer(const ResolvedRun& run, World& world, const RunOutput& output)
      : run_(run), world_(world), output_(output) {}
  bool train();  // returns whether the run finished

 private:
  void begin();
  void take_steps();
  void finish();
  void end_failing(const std::exception& error);

  RunStart find_start();
  void compare_with_plan();
  std::string print_header(const StartRecord& now);
  std::vector<StepMetrics> lost_steps() const;
  void set_weights();
  void begin_folder(const StartRecord& now, const std::string& details);

  struct Due {
    bool evaluation, save;
  };
  Due due_after(const StepMetrics& m);
  StepMetrics step();
  void measure(StepMetrics& m, Clock::time_point begin, int64_t targets);
  double baseline(const AnswerCounts& answers);
  double sum_of_losses(const StepResult& r, StepMetrics& m, const StepCounts& counts);
  std::vector<EvaluationLoss> eval_losses();
  bool evaluate(StepMetrics& m);
  void take_samples();
  void save(StepMetrics& m, bool begins, bool is_best);
  void report_first_step();
  void print_hash();
  bool is_leader() const { return world_.rank() == 0; }
  bool is_complete() const { return status_.completed == start_.total_steps; }
  bool ends() const { return is_complete() || stop_.signal || status_.early_stop.is_due(); }
  std::string why_stopped() const;

  const ResolvedRun& run_;
  const RunSetup& setup_ = run_.setup;
  World& world_;
  const RunOutput& output_;

  // The inputs of the run, and the position in its folder and data at which it starts.
  SharedSums sums_{world_};
  RunInputs inputs_{setup_,
                    make_token_files(setup_.config, world_, sums_, output_.terminal ? &output_.out : nullptr),
                    world_, sums_};
  const RunSamples samples_{setup_, world_};
  const TrainState run_state_ = state_of_run(setup_, inputs_, world_);  // the same in every checkpoint
  RunFolder folder_{setup_.config.run.dir};
  Checkpoints checkpoints_{setup_, world_, run_.loaded.overwrite};
  const RunStart start_ = find_start();
  Timetable times_{setup_.config, start_.total_steps};
  RunStatus status_{setup_, start_, run_state_};
  Reference reference_{setup_, inputs_, world_};
  InitialWeights initial_ = open_initial_weights(setup_, world_, reference_.is_missing());

  // The runtime that it computes with, and what it writes.
  RunTrace trace_{setup_.trace, folder_.path(), start_.total_steps, world_};
  MatrixPeak peak_ = find_matrix_peak(setup_, world_, start_.total_steps - status_.completed);
  TrainingRuntime runtime_{setup_,
                           world_,
                           {.order = world_.size() > 1 ? StreamOrder::concurrent : StreamOrder::in_order,
                            .trace = trace_.trace()}};
  Progress progress_{start_.total_steps, output_.terminal, output_.out};
  ModelDocuments documents_;  // documents of checkpoints and of model/
  CheckpointWriter writer_{setup_, checkpoints_, runtime_, world_, progress_};
  const StopRequest stop_request_{
      is_leader() && &output_.out == &std::cout ? stop_announcement(output_.terminal) : ""};
  StepPrediction prediction_{std::nullopt};
  std::optional<RunLog> log_;  // set on the leader only
  bool has_begun_ = false;     // whether run.log belongs to this run

  // Notes of the last step.
  FirstStop stop_{};
  std::vector<double> expert_counts_;  // (blocks, E): how often all ranks chose each expert in the last step
  bool save_is_late_ = false, threads_idle_ = false;  // threads_idle_: no rank's saver was busy
};

bool Trainer::train() {
  try {
    begin();
    take_steps();
    finish();
  } catch (const std::exception& error) {
    end_failing(error);
    throw;
  }
  return is_complete() || status_.early_stop.is_due();
}

// Prints the header, sets the weights, and takes possession of the folder.
void Trainer::begin() {
  compare_with_plan();
  const StartRecord now = this_start(setup_.device, world_, status_.completed, output_.command);
  const std::string details = print_header(now);
  set_weights();
  open_columns(setup_.config.loss, reference_, inputs_, sums_);
  if (is_leader()) begin_folder(now, details);
  has_begun_ = true;
  if (Watchdog* const watchdog = world_.watchdog())
    watchdog->on_giving_up([path = folder_.file("run.log"), rank = world_.rank()](const std::string& reason) {
      note_failure(path, failure_of(rank, reason));
    });
}

// Holds the folder, and finds the checkpoint to resume from, if the run resumes.
RunStart Trainer::find_start() {
  folder_.hold(world_);
  std::optional<TrainState> found = checkpoints_.begin(setup_.config.run.resume);
  if (found) update_fingerprints(*found, inputs_.prints.earlier);
  return start_of(std::move(found), checkpoints_.source().string(), run_state_, setup_.config,
                  inputs_.train.data);
}

void Trainer::compare_with_plan() {
  if (!is_leader()) return;
  std::optional<SavedPlan> plan = plan_of_run(setup_, folder_.path());
  if (!plan) return;
  prediction_ = StepPrediction(plan->seconds);
  trace_.compare_with(std::move(plan->timeline));
}

// Returns the header with all details. Collective.
std::string Trainer::print_header(const StartRecord& now) {
  const RunHeader header{
      .setup = setup_,
      .plan = runtime_.plan(),
      .peak = peak_,
      .bandwidth = bandwidth_of(setup_, world_),
      .steps = start_.total_steps,
      .replaced = run_.loaded.replaced,
      .start = now,
      .hosts = preflight(setup_, world_, output_.verbose),
      .weights = initial_.lines,
      .data = inputs_.train.describe(),
      .resumed = start_.resumed
                     ? describe_resumed(checkpoints_.source().string(), *start_.resumed, start_.changes,
                                        next_rate(setup_, start_, status_.completed), lost_steps())
                     : ""};
  if (!is_leader()) return "";
  std::string details = describe_run(header, true);
  output_.out << (output_.verbose ? details : describe_run(header, false)) << std::flush;
  return details;
}

// The steps after the checkpoint that this folder's run resumes from.
std::vector<StepMetrics> Trainer::lost_steps() const {
  if (!is_leader() || !checkpoints_.resumes_own()) return {};
  return lines_after(start_.resumed->data_step, folder_.file("metrics.jsonl"));
}

// Initializes the parameters, or loads the checkpoint. A checkpoint of adapters does not contain the frozen
// weights, and a missing reference is computed with the initial ones.
void Trainer::set_weights() {
  Engine& engine = runtime_.engine();
  documents_ =
      model_documents(setup_, checkpoints_.source().string(), inputs_.prints.base.value_or(""), world_);
  checkpoints_.plan(engine, documents_);
  // An adapter may contain trained rows.
  if (is_leader() && !start_.resumed && initial_.weights && !initial_.adapter)
    warn_of_untrained_tokens(inputs_.train.files, *initial_.weights, setup_);
  if (!start_.resumed || setup_.has_adapters() || reference_.is_missing())
    engine.initialize(values_of_run(setup_, initial_));
  initial_ = {};
  reference_.make(engine);
  if (start_.resumed) checkpoints_.load(engine);
}

// Takes possession of the folder by writing the resolved config; then the logs of rank 0 begin.
void Trainer::begin_folder(const StartRecord& now, const std::string& details) {
  RunLog::Past past;
  if (start_.resumed) {
    const fs::path from = checkpoints_.source().parent_path();
    past.lines = lines_before(start_.resumed->log_history, start_.resumed->data_step, from / "metrics.jsonl");
    past.samples = samples_before(start_.resumed->step, from / "samples.jsonl");
    past.starts = starts_before(start_.resumed->step, from / "starts.jsonl");
  }
  past.starts.push_back(now);
  Config config = setup_.config;
  const std::string text = history_comment(start_.history) + to_toml(config);
  checkpoints_.remove_overwritten();
  folder_.begin(text);
  log_.emplace(folder_.path(), text, start_.total_steps, past, config.log);
  progress_.open_log(folder_.file("run.log"), details, start_.resumed.has_value());
}

void Trainer::end_failing(const std::exception& error) {
  const std::string reason = report_of(error);
  if (has_begun_)
    note_failure(folder_.file("run.log"), world_.size() == 1 ? reason : failure_of(world_.rank(), reason));
  writer_.finish_failing();
  if (log_) log_->end_failing(reason);
  // Other ranks, and this rank's own streams, may be blocked in a collective: end the job before the
  // destructors wait for them.
  if (world_.size() > 1) world_.end_all_ranks(reason);
}

void Trainer::take_steps() {
  const Config& c = setup_.config;
  if (!start_.resumed && !c.init_from.empty()) take_samples();  // samples of the model before its training
  while (!ends()) {
    StepMetrics m = step();
    if (status_.data_step == 1) report_first_step();
    const Due due = due_after(m);
    const bool is_best = due.evaluation && evaluate(m);
    if (is_leader() &&
        (status_.completed % c.log.every == 0 || is_complete() || m.skipped || m.eval_loss || stop_.signal))
      progress_.step(m);
    if (due.evaluation) take_samples();
    save(m,
         due.save || is_best || (stop_.signal && c.checkpoint.on_sigterm) ||
             (status_.early_stop.is_due() && times_.save_at_end()),
         is_best);
    if (is_leader()) log_->write(m);
    add_line(status_.history, m);
    prediction_.add(m);
    if (const std::string written = trace_.between_steps(); !written.empty()) progress_.print(written);
    if (!m.skipped && c.run.hash_every > 0 && status_.completed % c.run.hash_every == 0 && !ends())
      print_hash();
  }
}

// In a run that evaluates, a checkpoint that a step schedules is evaluated, so that the best one is known,
// unless the run is to stop.
Trainer::Due Trainer::due_after(const StepMetrics& m) {
  if (m.skipped) return {false, false};
  const bool ends_epoch = inputs_.train.data.ends_epoch(status_.data_step);
  const auto is_due = [&](const StepPeriod& period) {
    return period.is_due(status_.completed, start_.total_steps, ends_epoch);
  };
  const bool saves = is_due(times_.saves),
             by_clock = save_is_late_ || (times_.save_clock.is_used() && is_complete());
  const bool evaluates = (times_.evaluations.every > 0 || times_.evaluations.each_epoch) &&
                         (!inputs_.eval.empty() || !samples_.empty());
  return {.evaluation = evaluates && !stop_.signal && (saves || is_due(times_.evaluations)),
          .save = saves || by_clock};
}

StepMetrics Trainer::step() {
  Engine& engine = runtime_.engine();
  LossScale& loss_scale = status_.loss_scale;
  world_.enter_step(status_.completed + 1);
  const auto begin = Clock::now();
  trace_.begin_step(status_.data_step + 1);
  const double scale = loss_scale.value(), waited = engine.waited_seconds();
  const StepCounts counts(setup_.config.loss, inputs_.train.data, status_.data_step);
  const int64_t targets = std::accumulate(counts.targets.begin(), counts.targets.end(), int64_t{0});
  StepMetrics m{.lr = next_rate(setup_, start_, status_.completed)};
  bool finite = true;
  if (targets > 0) {
    const StepResult r = engine.step(inputs_.train.data, {.data_step = status_.data_step,
                                                          .update = status_.completed + 1,
                                                          .lr = m.lr,
                                                          .loss_scale = scale,
                                                          .targets = targets,
                                                          .answers = counts.answers,
                                                          .baseline = baseline(counts.answers)});
    m.loss = sum_of_losses(r, m, counts) / scale;
    for (NamedValue<double>& of : m.file_losses) of.value /= scale;
    m.grad_norm = r.grad_norm;
    finite = r.finite;
    if (engine.moves_router_biases())
      engine.move_router_biases(finite ? expert_counts_ : std::vector<double>{});
  }
  m.skipped = targets == 0 || !finite;
  ++status_.data_step;
  trace_.end_step(status_.data_step);
  if (!m.skipped) ++status_.completed;
  status_.skipped.add({.step = status_.completed + 1,
                       .loss = m.loss,
                       .grad_norm = m.grad_norm,
                       .finite = finite,
                       .skipped = m.skipped},
                      loss_scale.dynamic() || setup_.config.train.skip_nonfinite);
  loss_scale.update(finite);
  status_.tokens += targets;
  measure(m, begin, targets);
  if (world_.size() > 1 && !setup_.device.is_cuda())  // a GPU waits without the host
    m.exposed_comm_seconds = engine.waited_seconds() - waited;
  if (loss_scale.in_use()) m.loss_scale = scale;
  return m;
}

// Measures a step that began at `begin`: the position of the run after it, and its speed.
void Trainer::measure(StepMetrics& m, Clock::time_point begin, int64_t targets) {
  m.step = status_.completed;
  m.data_step = status_.data_step;
  m.tokens = status_.tokens;
  m.step_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (is_leader()) log_->stamp(m);
  m.tokens_per_second = static_cast<double>(targets) / m.step_seconds;
  const int64_t computed = targets > 0 ? setup_.batching.total_sequences * setup_.seq_len() : 0;
  const double positions = static_cast<double>(computed) / m.step_seconds;
  if (inputs_.train.has_untrained_places()) m.all_tokens_per_second = positions;
  if (const std::string lines = peak_.set_mfu(m, positions, runtime_.plan().flops);
      is_leader() && !lines.empty())
    progress_.print(lines);
  m.memory_bytes = memory_counters().live_bytes;
  if (!prediction_.has_begun()) m.predicted_seconds = prediction_.seconds();
}

// The baseline of the loss, over all lanes of the step.
double Trainer::baseline(const AnswerCounts& answers) {
  if (!setup_.config.loss.has_baseline()) return 0;
  const std::vector<double> mine = runtime_.engine().gains(inputs_.train.data, status_.data_step);
  return baseline_of({.examples = static_cast<double>(answers.examples),
                      .gain_of_others = gather_losses(world_, setup_, mine, {}, {}).sum});
}

// The loss of the step, and with several files the loss of each. The same exchange carries each rank's stop
// request, so that all ranks stop after the same step, whether it is still writing a checkpoint, and whether
// one is due by its clock.
double Trainer::sum_of_losses(const StepResult& r, StepMetrics& m, const StepCounts& counts) {
  std::vector<double> mine{static_cast<double>(stop_request_.signal()), static_cast<double>(writer_.busy()),
                           static_cast<double>(times_.save_clock.has_run_out())};
  const size_t flags = mine.size();
  mine.insert(mine.end(), r.expert_counts.begin(), r.expert_counts.end());
  mine.insert(mine.end(), r.router_losses.begin(), r.router_losses.end());
  const Data& data = inputs_.train.data;
  const AnswerLoss& loss = setup_.config.loss;
  const bool by_file = data.source_count() > 1;
  const std::vector<double> of_answers = values_of(r.answers);
  GatheredLosses all = gather_losses(world_, setup_, r.lane_losses,
                                     loss.is_used() ? std::span(of_answers)
                                     : by_file      ? r.sequence_losses
                                                    : std::span<const double>{},
                                     mine);
  if (loss.is_used()) {
    AnswerSums sums;
    std::vector<double> losses;
    for (const AnswerSums& of : answers_in(all.sequences)) {
      sums += of;
      losses.push_back(of.loss);
    }
    m.answers = answer_metrics(loss, sums);
    all.sequences = std::move(losses);
  }
  if (by_file)
    for (const FileLoss& of : losses_by_file(data, status_.data_step, all.sequences, counts.mean_over)) {
      m.file_losses.push_back({inputs_.train.names[of.file], of.loss});
      m.file_targets.push_back({inputs_.train.names[of.file], counts.targets[of.file]});
    }
  save_is_late_ = all.notes.front()[2] != 0;
  threads_idle_ = true;
  expert_counts_.assign(r.expert_counts.size(), 0);
  std::array<double, 2> router_losses{};
  for (int rank = 0; rank < world_.size(); ++rank) {
    const std::vector<double>& notes = all.notes[static_cast<size_t>(rank)];
    stop_.note(rank, notes[0]);
    threads_idle_ = threads_idle_ && notes[1] == 0;
    const double* next = &notes[flags];
    for (double& count : expert_counts_) count += *next++;
    for (size_t i = 0; i < r.router_losses.size(); ++i) router_losses[i % 2] += *next++;
  }
  if (!expert_counts_.empty()) m.experts = expert_metrics(expert_counts_, setup_.model.experts);
  if (setup_.router_aux_loss() > 0) m.experts.push_back({"aux_loss", router_losses[0]});
  if (setup_.config.train.router_z_loss > 0) m.experts.push_back({"z_loss", router_losses[1]});
  return all.sum;
}

// The losses of the files of data.eval; empty if a stop request on any rank abandons the evaluation.
std::vector<EvaluationLoss> Trainer::eval_losses() {
  std::vector<EvaluationLoss> losses;
  for (const RunData& of : inputs_.eval) {
    const std::optional<EvaluationLoss> loss =
        evaluation_loss(runtime_.engine(), setup_.config.loss, of.data, of.files.front().path(), world_,
                        [&] { return stop_request_.signal() != 0; });
    if (!loss) return {};
    losses.push_back(*loss);
  }
  return losses;
}

// Evaluates, and returns whether to save the result as the best. A stop request on any rank abandons the
// evaluation, which then has no result.
bool Trainer::evaluate(StepMetrics& m) {
  const std::vector<EvaluationLoss> losses = eval_losses();
  double sum = 0;
  AnswerSums answers;
  for (size_t i = 0; i < losses.size(); ++i) {
    sum += losses[i].mean;
    answers += losses[i].answers;
    if (losses.size() > 1) m.file_eval_losses.push_back({inputs_.eval[i].names.front(), losses[i].mean});
  }
  if (!losses.empty()) m.eval_loss = sum / static_cast<double>(losses.size());
  if (!losses.empty() && setup_.config.loss.is_used())
    m.eval_answers = answer_metrics(setup_.config.loss, answers);
  const std::array<double, 2> mine{static_cast<double>(stop_request_.signal()),
                                   static_cast<double>(times_.best_saves.may_save(status_.completed))};
  const std::vector<double> all = world_.all_gather(mine, "stop requests");
  for (int rank = 0; rank < world_.size(); ++rank) stop_.note(rank, all[2 * static_cast<size_t>(rank)]);
  if (m.eval_loss) status_.early_stop.note(status_.completed, *m.eval_loss);
  return all[1] != 0 && is_new_best(m.eval_loss, writer_.best());
}

// A stop request on any rank abandons the samples.
void Trainer::take_samples() {
  if (samples_.empty() || stop_.signal) return;
  const std::vector<SampleText> taken =
      samples_.take(runtime_.engine(), status_.completed, [&] { return stop_request_.signal() != 0; });
  if (!is_leader() || taken.empty()) return;
  log_->write(taken);
  progress_.print(describe(taken));
}

void Trainer::save(StepMetrics& m, bool begins, bool is_best) {
  CheckpointWriter::Work work{.last = ends(), .threads_idle = std::exchange(threads_idle_, false)};
  if (begins) {
    times_.save_clock.restart();
    work.begin = [&] {
      TrainState s = run_state_;
      status_.store(s);
      const DataPosition position = inputs_.train.data.position(status_.data_step);
      s.data_epoch = position.epoch;
      s.data_sequence = position.sequence;
      set_positions(s.sources, inputs_.train.data.source_positions(status_.data_step));
      s.changes = start_.history;
      s.eval_loss = m.eval_loss;
      add_line(s.log_history, m);
      return s;
    };
  }
  writer_.between_steps(m, work);
  if (is_best) times_.best_saves.saved(status_.completed, m.save_seconds.value_or(0));
}

void Trainer::report_first_step() {
  const FirstStep all =
      of_all_ranks(first_step(setup_, world_.rank(), inputs_.train.data, runtime_.engine()), world_);
  if (!is_leader()) return;
  if (setup_.config.log.step1) progress_.print(all.brief.substr(0, all.brief.rfind('\n')));
  warn_on_error([&] { folder_.write("step1.txt", all.brief + all.units); });
}

void Trainer::print_hash() {
  const std::string hash = weights_hash(runtime_.engine(), world_);
  if (is_leader()) progress_.print(str("step ", status_.completed, " weights ", hash));
}

// The reason why the run stopped; "" if it has made all its steps.
std::string Trainer::why_stopped() const {
  if (is_complete()) return "";
  if (status_.early_stop.is_due()) return status_.early_stop.reason();
  return str("rank ", stop_.rank, " received ", signal_name(stop_.signal));
}

void Trainer::finish() {
  const std::string result = setup_.has_adapters() ? "adapter" : "model";
  save_model(folder_.file(result), documents_, setup_.shard_bytes, runtime_.engine(), world_);
  if (is_leader()) warn_on_error([&] { checkpoints_.remove_earlier_results(); });
  const std::string traced = trace_.finish();
  const std::string hash = weights_hash(runtime_.engine(), world_);
  if (!is_leader()) return;
  const std::string stopped_by = why_stopped();
  std::string end = stopped_by.empty() ? ""
                                       : str("stopped   after step ", with_commas(status_.completed), " of ",
                                             with_commas(start_.total_steps), ": ", stopped_by, '\n');
  end += describe_best(status_.history, writer_.best(), folder_.path());
  end += writer_.costs();
  end += prediction_.line();
  if (!traced.empty()) end += traced + '\n';
  const std::string report = log_->end(stopped_by);
  if (!report.empty()) end += "report    " + report + '\n';
  note_last_run(folder_.path());
  progress_.print(str(end, std::left, std::setw(10), result, folder_.file(result), "\nweights ", hash));
}

}  // namespace

bool run_training(ResolvedRun run, World& world, const RunOutput& output) {
  survive_closed_output();
  Config& config = run.setup.config;
  use_threads(config.run, world);
  config.run.resume = resolved_resume(config.run, world);
  config.data.date = date_of_run(config, world);
  return Trainer(run, world, output).train();
}

}  // namespace flatshard
