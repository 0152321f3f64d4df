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
#include "train/run/this_start.h"
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
  explicit RunStatus(const RunSetup& setup)
      : loss_scale(setup.compute, setup.config.precision.loss_scale),
        early_stop(setup.config.train.stop_after_no_improvement) {}

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
      mean_over.push_back(loss.is_over_tokens() ? of.tokens : of.units);
      answers += of;
    }
  }
  std::vector<int64_t> targets{}, mean_over{};
  AnswerCounts answers{};  // answers of all files
};

// The loop over the steps, with the objects that run_training() has made.
struct Trainer {
  World& world;
  const RunSetup& setup;
  const RunInputs& inputs;
  const RunSamples& samples;
  const RunFolder& folder;
  const RunStart& start;
  const TrainState& run_state;  // the part of the state that is the same in every checkpoint
  const ModelDocuments& documents;
  const StopRequest& stop_request;
  TrainingRuntime& runtime;
  Timetable& times;
  RunStatus& status;
  RunTrace& trace;
  MatrixPeak& peak;
  StepPrediction& prediction;
  Progress& progress;
  CheckpointWriter& writer;
  std::optional<RunLog>& log;  // set on the leader only

  FirstStop stop{};
  bool save_is_late = false, threads_idle = false;  // last step; threads_idle: no rank's saver was busy

  bool run();  // returns whether the run finished

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
  void finish();
  bool is_leader() const { return world.rank() == 0; }
  bool is_complete() const { return status.completed == start.total_steps; }
  bool ends() const { return is_complete() || stop.signal || status.early_stop.is_due(); }
  std::string why_stopped() const;
};

bool Trainer::run() {
  const Config& c = setup.config;
  if (!start.resumed && !c.init_from.empty()) take_samples();  // samples of the model before its training
  while (!ends()) {
    StepMetrics m = step();
    if (status.data_step == 1) report_first_step();
    const Due due = due_after(m);
    const bool is_best = due.evaluation && evaluate(m);
    if (is_leader() &&
        (status.completed % c.log.every == 0 || is_complete() || m.skipped || m.eval_loss || stop.signal))
      progress.step(m);
    if (due.evaluation) take_samples();
    save(m,
         due.save || is_best || (stop.signal && c.checkpoint.on_sigterm) ||
             (status.early_stop.is_due() && times.save_at_end()),
         is_best);
    if (is_leader()) log->write(m);
    add_line(status.history, m);
    prediction.add(m);
    if (const std::string written = trace.between_steps(); !written.empty()) progress.print(written);
    if (!m.skipped && c.run.hash_every > 0 && status.completed % c.run.hash_every == 0 && !ends())
      print_hash();
  }
  finish();
  return is_complete() || status.early_stop.is_due();
}

// In a run that evaluates, a checkpoint that a step schedules is evaluated, so that the best one is known,
// unless the run is to stop.
Trainer::Due Trainer::due_after(const StepMetrics& m) {
  if (m.skipped) return {false, false};
  const bool ends_epoch = inputs.train.data.ends_epoch(status.data_step);
  const auto is_due = [&](const StepPeriod& period) {
    return period.is_due(status.completed, start.total_steps, ends_epoch);
  };
  const bool saves = is_due(times.saves),
             by_clock = save_is_late || (times.save_clock.is_used() && is_complete());
  const bool evaluates = (times.evaluations.every > 0 || times.evaluations.each_epoch) &&
                         (!inputs.eval.empty() || !samples.empty());
  return {.evaluation = evaluates && !stop.signal && (saves || is_due(times.evaluations)),
          .save = saves || by_clock};
}

StepMetrics Trainer::step() {
  Engine& engine = runtime.engine();
  LossScale& loss_scale = status.loss_scale;
  world.enter_step(status.completed + 1);
  const auto begin = Clock::now();
  trace.begin_step(status.data_step + 1);
  const double scale = loss_scale.value(), waited = engine.waited_seconds();
  const StepCounts counts(setup.config.loss, inputs.train.data, status.data_step);
  const int64_t targets = std::accumulate(counts.targets.begin(), counts.targets.end(), int64_t{0});
  StepMetrics m{.lr = next_rate(setup, start, status.completed)};
  bool finite = true;
  if (targets > 0) {
    const StepResult r = engine.step(inputs.train.data, {.data_step = status.data_step,
                                                         .update = status.completed + 1,
                                                         .lr = m.lr,
                                                         .loss_scale = scale,
                                                         .targets = targets,
                                                         .answers = counts.answers,
                                                         .baseline = baseline(counts.answers)});
    m.loss = sum_of_losses(r, m, counts) / scale;
    for (NamedValue<double>& of : m.file_losses) of.value /= scale;
    m.grad_norm = r.grad_norm;
    finite = r.finite;
  }
  m.skipped = targets == 0 || !finite;
  ++status.data_step;
  trace.end_step(status.data_step);
  if (!m.skipped) ++status.completed;
  status.skipped.add({.step = status.completed + 1,
                      .loss = m.loss,
                      .grad_norm = m.grad_norm,
                      .finite = finite,
                      .skipped = m.skipped},
                     loss_scale.dynamic() || setup.config.train.skip_nonfinite);
  loss_scale.update(finite);
  status.tokens += targets;
  measure(m, begin, targets);
  if (world.size() > 1 && !setup.device.is_cuda())  // a GPU waits without the host
    m.exposed_comm_seconds = engine.waited_seconds() - waited;
  if (loss_scale.in_use()) m.loss_scale = scale;
  return m;
}

// Measures a step that began at `begin`: the position of the run after it, and its speed.
void Trainer::measure(StepMetrics& m, Clock::time_point begin, int64_t targets) {
  m.step = status.completed;
  m.data_step = status.data_step;
  m.tokens = status.tokens;
  m.step_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (is_leader()) log->stamp(m);
  m.tokens_per_second = static_cast<double>(targets) / m.step_seconds;
  const int64_t computed = targets > 0 ? setup.batching.total_sequences * setup.seq_len() : 0;
  const double positions = static_cast<double>(computed) / m.step_seconds;
  if (inputs.train.has_untrained_places()) m.all_tokens_per_second = positions;
  if (const std::string lines = peak.set_mfu(m, positions, runtime.plan().flops);
      is_leader() && !lines.empty())
    progress.print(lines);
  m.memory_bytes = memory_counters().live_bytes;
  if (!prediction.has_begun()) m.predicted_seconds = prediction.seconds();
}

// The baseline of the loss, over all lanes of the step.
double Trainer::baseline(const AnswerCounts& answers) {
  if (!setup.config.loss.has_baseline()) return 0;
  const std::vector<double> mine = runtime.engine().gains(inputs.train.data, status.data_step);
  return baseline_of({.units = static_cast<double>(answers.units),
                      .gain_of_others = gather_losses(world, setup, mine, {}, {}).sum});
}

// The loss of the step, and with several files the loss of each. The same exchange carries each rank's stop
// request, so that all ranks stop after the same step, whether it is still writing a checkpoint, and whether
// one is due by its clock.
double Trainer::sum_of_losses(const StepResult& r, StepMetrics& m, const StepCounts& counts) {
  const std::array<double, 3> mine{static_cast<double>(stop_request.signal()),
                                   static_cast<double>(writer.busy()),
                                   static_cast<double>(times.save_clock.has_run_out())};
  const Data& data = inputs.train.data;
  const AnswerLoss& loss = setup.config.loss;
  const bool by_file = data.source_count() > 1;
  const std::vector<double> of_answers = values_of(r.answers);
  GatheredLosses all = gather_losses(world, setup, r.lane_losses,
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
    for (const FileLoss& of : losses_by_file(data, status.data_step, all.sequences, counts.mean_over)) {
      m.file_losses.push_back({inputs.train.names[of.file], of.loss});
      m.file_targets.push_back({inputs.train.names[of.file], counts.targets[of.file]});
    }
  save_is_late = all.notes.front()[2] != 0;
  threads_idle = true;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::vector<double>& notes = all.notes[static_cast<size_t>(rank)];
    stop.note(rank, notes[0]);
    threads_idle = threads_idle && notes[1] == 0;
  }
  return all.sum;
}

// The losses of the files of data.eval; empty if a stop request on any rank abandons the evaluation.
std::vector<EvaluationLoss> Trainer::eval_losses() {
  std::vector<EvaluationLoss> losses;
  for (const RunData& of : inputs.eval) {
    const std::optional<EvaluationLoss> loss =
        evaluation_loss(runtime.engine(), setup.config.loss, of.data, of.files.front().path(), world,
                        [&] { return stop_request.signal() != 0; });
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
    if (losses.size() > 1) m.file_eval_losses.push_back({inputs.eval[i].names.front(), losses[i].mean});
  }
  if (!losses.empty()) m.eval_loss = sum / static_cast<double>(losses.size());
  if (!losses.empty() && setup.config.loss.is_used())
    m.eval_answers = answer_metrics(setup.config.loss, answers);
  const std::array<double, 2> mine{static_cast<double>(stop_request.signal()),
                                   static_cast<double>(times.best_saves.may_save(status.completed))};
  const std::vector<double> all = world.all_gather(mine, "stop requests");
  for (int rank = 0; rank < world.size(); ++rank) stop.note(rank, all[2 * static_cast<size_t>(rank)]);
  if (m.eval_loss) status.early_stop.note(status.completed, *m.eval_loss);
  return all[1] != 0 && is_new_best(m.eval_loss, writer.best());
}

// A stop request on any rank abandons the samples.
void Trainer::take_samples() {
  if (samples.empty() || stop.signal) return;
  const std::vector<SampleText> taken =
      samples.take(runtime.engine(), status.completed, [&] { return stop_request.signal() != 0; });
  if (!is_leader() || taken.empty()) return;
  log->write(taken);
  progress.print(describe(taken));
}

void Trainer::save(StepMetrics& m, bool begins, bool is_best) {
  CheckpointWriter::Work work{.last = ends(), .threads_idle = std::exchange(threads_idle, false)};
  if (begins) {
    times.save_clock.restart();
    work.begin = [&] {
      TrainState s = run_state;
      status.store(s);
      const DataPosition position = inputs.train.data.position(status.data_step);
      s.data_epoch = position.epoch;
      s.data_sequence = position.sequence;
      set_positions(s.sources, inputs.train.data.source_positions(status.data_step));
      s.changes = start.history;
      s.eval_loss = m.eval_loss;
      add_line(s.log_history, m);
      return s;
    };
  }
  writer.between_steps(m, work);
  if (is_best) times.best_saves.saved(status.completed, m.save_seconds.value_or(0));
}

void Trainer::report_first_step() {
  const FirstStep all =
      of_all_ranks(first_step(setup, world.rank(), inputs.train.data, runtime.engine()), world);
  if (!is_leader()) return;
  if (setup.config.log.step1) progress.print(all.brief.substr(0, all.brief.rfind('\n')));
  warn_on_error([&] { folder.write("step1.txt", all.brief + all.units); });
}

void Trainer::print_hash() {
  const std::string hash = weights_hash(runtime.engine(), world);
  if (is_leader()) progress.print(str("step ", status.completed, " weights ", hash));
}

// The reason why the run stopped; "" if it has made all its steps.
std::string Trainer::why_stopped() const {
  if (is_complete()) return "";
  if (status.early_stop.is_due()) return status.early_stop.reason();
  return str("rank ", stop.rank, " received ", signal_name(stop.signal));
}

void Trainer::finish() {
  const std::string result = setup.has_adapters() ? "adapter" : "model";
  save_model(folder.file(result), documents, setup.shard_bytes, runtime.engine(), world);
  const std::string traced = trace.finish();
  const std::string hash = weights_hash(runtime.engine(), world);
  if (!is_leader()) return;
  const std::string stopped_by = why_stopped();
  std::string end = stopped_by.empty() ? ""
                                       : str("stopped   after step ", with_commas(status.completed), " of ",
                                             with_commas(start.total_steps), ": ", stopped_by, '\n');
  end += describe_best(status.history, writer.best(), folder.path());
  end += prediction.line();
  if (!traced.empty()) end += traced + '\n';
  const std::string report = log->end(stopped_by);
  if (!report.empty()) end += "report    " + report + '\n';
  note_last_run(folder.path());
  progress.print(str(end, std::left, std::setw(10), result, folder.file(result), "\nweights ", hash));
}

std::optional<std::string> joined(const std::vector<std::string>& prints) {
  std::optional<std::string> text;
  for (const std::string& print : prints) text = text ? str(*text, "; ", print) : print;
  return text;
}

TrainState state_of_run(const RunSetup& setup, const RunInputs& inputs, const World& world, Config config) {
  const InputPrints& prints = inputs.prints;
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
          .ranks = world.size(),
          .config = config_values(config)};
}

// Initializes the parameters, or loads the checkpoint. A checkpoint of adapters does not contain the frozen
// weights, and a missing reference is computed with the initial ones.
void set_weights(const RunSetup& setup, const RunStart& start, InitialWeights initial, Reference& reference,
                 Checkpoints& checkpoints, Engine& engine) {
  if (!start.resumed || setup.has_adapters() || reference.is_missing())
    engine.initialize(values_of_run(setup, initial));
  reference.make(engine);
  if (start.resumed) checkpoints.load(engine);
}

// Takes possession of the folder by writing the resolved config; then the logs of rank 0 begin.
void begin_folder(RunFolder& folder, const Checkpoints& checkpoints, const RunStart& start, Config config,
                  const StartRecord& now, std::optional<RunLog>& log) {
  RunLog::Past past;
  if (start.resumed) {
    const fs::path from = checkpoints.source().parent_path();
    past.lines = lines_before(start.resumed->log_history, start.resumed->data_step, from / "metrics.jsonl");
    past.samples = samples_before(start.resumed->step, from / "samples.jsonl");
    past.starts = starts_before(start.resumed->step, from / "starts.jsonl");
  }
  past.starts.push_back(now);
  const std::string text = history_comment(start.history) + to_toml(config);
  checkpoints.remove_overwritten();
  folder.begin(text);
  log.emplace(folder.path(), text, start.total_steps, past, config.log);
}

}  // namespace

bool run_training(const LoadedConfig& loaded, World& world, const RunOutput& output) {
  survive_closed_output();
  use_threads(loaded.config.run, world);
  const bool is_leader = world.rank() == 0;

  // The inputs of the run, and the position in its folder and data at which it starts.
  const Config config = with_date(loaded.config, world);
  SharedSums sums(world);
  const RunSetup setup =
      set_up(with_token_files(config, world, sums, output.terminal ? &output.out : nullptr), world);
  RunInputs inputs(setup, world, sums);
  const RunSamples samples(setup, world);
  const TrainState run_state = state_of_run(setup, inputs, world, config);
  RunFolder folder(setup.config.run.dir);
  Checkpoints checkpoints(setup, world, loaded.overwrite);
  folder.hold(world);
  std::optional<TrainState> found = checkpoints.begin(setup.config.run.resume);
  if (found) update_fingerprints(*found, inputs.prints.earlier);
  const RunStart start =
      start_of(std::move(found), checkpoints.source().string(), run_state, setup.config, inputs.train.data);
  Timetable times(setup.config, start.total_steps);
  RunStatus status(setup);
  if (start.resumed) status.restore(*start.resumed, run_state);
  Reference reference(setup, inputs, world);
  InitialWeights initial = open_initial_weights(setup, world, reference.is_missing());

  // The runtime that it computes with.
  RunTrace trace(setup.trace, folder.path(), start.total_steps, world);
  MatrixPeak peak = find_matrix_peak(setup, world, start.total_steps - status.completed);
  TrainingRuntime runtime(
      setup, world,
      {.order = world.size() > 1 ? StreamOrder::concurrent : StreamOrder::in_order, .trace = trace.trace()});
  Progress progress(start.total_steps, output.terminal, output.out);
  ModelDocuments documents;  // documents of checkpoints and of model/
  CheckpointWriter writer(setup, checkpoints, runtime, world, progress);
  const StopRequest stop_request(is_leader && &output.out == &std::cout ? stop_announcement(output.terminal)
                                                                        : "");
  std::optional<RunLog> log;
  bool has_begun = false;  // whether run.log belongs to this run
  try {
    const Bandwidth bandwidth = bandwidth_of(setup, world);
    std::optional<SavedPlan> plan;
    if (is_leader) plan = plan_of_run(setup, folder.path());
    StepPrediction prediction(plan ? std::optional(plan->seconds) : std::nullopt);
    if (plan) trace.compare_with(std::move(plan->timeline));
    const std::string hosts = preflight(setup, world, output.verbose);
    const StartRecord now = this_start(setup, world, status.completed, output.command);
    const std::string resumed =
        start.resumed ? describe_resumed(checkpoints.source().string(), *start.resumed, start.changes,
                                         next_rate(setup, start, status.completed))
                      : "";
    const RunHeader header{setup,
                           runtime.plan(),
                           peak,
                           bandwidth,
                           start.total_steps,
                           loaded.replaced,
                           now,
                           hosts,
                           initial.lines,
                           inputs.train.describe(),
                           resumed};
    const std::string details = is_leader ? describe_run(header, true) : "";
    if (is_leader) output.out << (output.verbose ? details : describe_run(header, false)) << std::flush;

    documents = model_documents(setup, checkpoints.source().string(), inputs.prints.base.value_or(""), world);
    checkpoints.plan(runtime.engine(), documents);
    // An adapter may contain trained rows.
    if (is_leader && !start.resumed && initial.weights && !initial.adapter)
      warn_of_untrained_tokens(inputs.train.files, *initial.weights, setup);
    set_weights(setup, start, std::move(initial), reference, checkpoints, runtime.engine());
    open_columns(setup.config.loss, reference, inputs, sums);
    if (is_leader) {
      begin_folder(folder, checkpoints, start, config, now, log);
      progress.open_log(folder.file("run.log"), details, start.resumed.has_value());
    }
    has_begun = true;
    if (Watchdog* const watchdog = world.watchdog())
      watchdog->on_giving_up([path = folder.file("run.log"), rank = world.rank()](const std::string& reason) {
        note_failure(path, failure_of(rank, reason));
      });
    return Trainer{world,   setup, inputs, samples, folder, start,      run_state, documents, stop_request,
                   runtime, times, status, trace,   peak,   prediction, progress,  writer,    log}
        .run();
  } catch (const std::exception& error) {
    const std::string reason = report_of(error);
    if (has_begun)
      note_failure(folder.file("run.log"), world.size() == 1 ? reason : failure_of(world.rank(), reason));
    writer.finish_failing();
    if (log) log->end_failing(reason);
    // Other ranks, and this rank's own streams, may be blocked in a collective: end the job before the
    // destructors wait for them.
    if (world.size() > 1) world.end_all_ranks(reason);
    throw;
  }
}

}  // namespace flatshard
