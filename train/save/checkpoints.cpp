#include "train/save/checkpoints.h"

#include <algorithm>
#include <memory>
#include <set>

#include "checkpoint/durable.h"
#include "comm/agreement.h"
#include "hub/adapter_base.h"
#include "runtime/log.h"
#include "runtime/whole_file.h"
#include "train/save/best_checkpoint.h"
#include "train/save/checkpoint_names.h"
#include "train/save/save_times.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// The new name of a checkpoint from an abandoned history, when the same step is saved again.
fs::path given_up_name(const fs::path& checkpoint) { return unfinished_name(checkpoint.string() + ".old"); }

bool is_unfinished_name(const std::string& name) {
  const std::string stem = name.substr(0, name.find('.'));
  return step_of(stem) && (name == unfinished_name(stem) || name == given_up_name(stem));
}

// This process holds the folder's lock, so no other process still writes the files removed here.
void remove_leftovers(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    if (is_unfinished_name(entry.path().filename().string())) found.push_back(entry.path());
  for (const fs::path& path : found) {
    remove_checkpoint(path);
    log_info(path.string(), ": removed this unfinished checkpoint of an interrupted run");
  }
  fs::remove(unfinished_name((folder / kLatestName).string()), none);
}

// Advice to resume from the newest checkpoint that is older than the damaged one; "" if there is none.
std::string resume_advice(const fs::path& damaged) {
  const std::optional<int64_t> step = step_of(damaged.filename().string());
  std::vector<int64_t> others = steps_in(damaged.parent_path());
  std::erase_if(others, [&](int64_t other) { return !step || other >= *step; });
  if (others.empty()) return "";
  return str("; the newest older checkpoint is ",
             (damaged.parent_path() / name_of_step(others.back())).string(), ": resume from it");
}

// Runs work() and adds that advice to its Error.
template <class Work>
void with_resume_advice(const fs::path& damaged, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    throw Error(error.what() + resume_advice(damaged), error.where);
  }
}

}  // namespace

std::string resolved_resume(const RunConfig& run, World& world) {
  if (run.resume != kResumeAuto) return run.resume;
  const bool has_one = world.rank() == 0 && !steps_in(run.dir).empty();
  return world.all_gather_texts(has_one ? kResumeLatest : "", "the checkpoint to resume from").front();
}

Checkpoints::Checkpoints(const RunSetup& setup, World& world, bool overwrite)
    : folder_(setup.config.run.dir),
      keep_(setup.config.checkpoint.keep),
      shard_bytes_(setup.shard_bytes),
      world_(world),
      overwrite_(overwrite) {}

fs::path checkpoint_named(const std::string& resume, const fs::path& run) {
  if (resume == kResumeLatest) return latest_in(run);
  return resume == kResumeBest ? best_in(run).path : find_checkpoint(resume);
}

std::vector<fs::path> Checkpoints::results() const {
  std::vector<fs::path> found;
  for (const int64_t step : steps_in(folder_)) found.push_back(folder_ / name_of_step(step));
  for (const auto& names : {kResults, kEarlierResults})
    for (const char* name : names)
      if (fs::exists(fs::symlink_status(folder_ / name))) found.push_back(folder_ / name);
  return found;
}

void Checkpoints::set_results_aside() const {
  for (size_t i = 0; i < kResults.size(); ++i) {
    if (!is_of_checkpoint(folder_ / kResults[i])) continue;
    remove_checkpoint(folder_ / kEarlierResults[i]);
    fs::rename(folder_ / kResults[i], folder_ / kEarlierResults[i]);
  }
}

void Checkpoints::remove_earlier_results() const {
  for (const char* name : kEarlierResults) remove_checkpoint(folder_ / name);
}

void Checkpoints::check_no_others() const {
  const std::vector<fs::path> found = results();
  if (overwrite_) {
    for (const fs::path& path : found)
      check(is_of_checkpoint(path), path.string(), ": was not written by a run: move it away");
    return;
  }
  const std::vector<int64_t> steps = steps_in(folder_);
  check(steps.empty(), folder_.string(), ": contains checkpoints of an earlier run, up to ",
        steps.empty() ? "" : name_of_step(steps.back()),
        ": continue it with --resume latest, choose another run.dir, or replace it with --overwrite");
  check(found.empty(), found.empty() ? "" : found.front().string(),
        ": is the result of an earlier run: choose another run.dir, or replace it with --overwrite");
}

void Checkpoints::remove_overwritten() const {
  if (!overwrite_) return;
  for (const fs::path& path : results()) remove_checkpoint(path);
  for (const char* file : {kLatestName, "report.html", "trace.json", "overlap.svg"})
    fs::remove(folder_ / file);
}

int64_t Checkpoints::bytes() const {
  int64_t bytes = 0;
  for (const TensorFolderLayout& layout : layouts_) bytes += layout.file_bytes();
  return bytes;
}

std::optional<TrainState> Checkpoints::begin(const std::string& resume) {
  std::string path;
  succeed_together(world_, [&] {
    if (world_.rank() != 0) return;
    remove_leftovers(folder_);
    if (!resume.empty()) path = checkpoint_named(resume, folder_).string();
    own_ = !path.empty() && fs::equivalent(fs::absolute(path).lexically_normal().parent_path(), folder_);
    if (!own_) check_no_others();
    check(!own_ || !overwrite_, folder_.string(),
          ": --overwrite would remove the checkpoints of the run that is to be resumed: leave it out");
  });
  source_ = world_.all_gather_texts(path, "the checkpoint to resume from").front();
  own_ = world_.all_gather_texts(own_ ? "own" : "", "where it lies").front() == "own";
  if (source_.empty()) return {};
  TrainState state;
  succeed_together(world_, [&] {
    with_resume_advice(source_, [&] {
      sums_ = Checksums::read(source_.string());
      sums_.check_lengths(source_.string());
      locate_damage([&] {
        const std::set<std::string> with_tensors = check_complete(source_, sums_);
        for (const auto& [name, ignored] : sums_.files())
          if (!with_tensors.contains(name)) sums_.verify(source_.string(), name);
      });
      state = read_train_state((source_ / TrainState::kFileName).string());
    });
  });
  if (own_) last_step_ = state.step;
  best_ = state.best;
  return state;
}

void Checkpoints::plan(Engine& engine, const ModelDocuments& documents) {
  documents_ = &documents;
  try {
    files_ = shard_files(engine, documents.vocab_has_grown);
    for (const ShardFiles& files : files_) layouts_.push_back(layout_of(files, engine.model(), shard_bytes_));
  } catch (const Error& error) {
    throw Error(str("checkpoint.shard_size: ", error.what()), error.where);
  }
  check_open_files();
}

// Saving and resuming each open all files of a checkpoint at once.
void Checkpoints::check_open_files() const {
  constexpr int64_t kOthers = 16;  // open files of metrics, connections to other ranks, and the like
  int64_t files = 0;
  for (const TensorFolderLayout& layout : layouts_) files += std::ssize(layout.files());
  const int64_t left = files_left_to_open();
  check(files + kOthers <= left, "checkpoint.shard_size = ", shard_bytes_, " bytes splits a checkpoint into ",
        files, " files, all open at once, but this process can open only ",
        std::max<int64_t>(left - kOthers, 0),
        " more: raise checkpoint.shard_size, or the limit on open files (ulimit -n)");
}

void Checkpoints::load(Engine& engine) {
  std::vector<std::unique_ptr<TensorFolder>> sources;
  std::vector<TensorFolderReader> readers;
  const auto read = [&] {
    locate_damage([&] {
      for (size_t i = 0; i < files_.size(); ++i) {
        sources.push_back(std::make_unique<TensorFolder>(source_.string(), files_[i].stem,
                                                         joined_experts(engine.model().config())));
        check_tensors(*sources.back(), layouts_[i]);
        readers.emplace_back(*sources.back());
      }
    });
    ReadStream bytes;
    for (const ShardedUnit& unit : engine.units())
      for (size_t i = 0; i < readers.size(); ++i) add_shards(readers[i], files_[i], unit, bytes);
    engine.load_shards([&](size_t unit) {
      for (size_t i = 0; i < readers.size(); ++i)
        read_shards(readers[i], files_[i], engine.units()[unit], engine.writes_unit(unit), bytes,
                    engine.compute());
    });
  };
  succeed_together(world_, [&] { with_resume_advice(source_, read); });
  check_sums(readers);
  engine.publish_all();
  // Newer checkpoints belong to a history that this run abandons.
  succeed_together(world_, [&] {
    if (!own_ || world_.rank() != 0) return;
    set_results_aside();
    for (const int64_t step : steps_in(folder_))
      if (step > last_step_)
        log_info((folder_ / name_of_step(step)).string(),
                 ": is newer than the checkpoint resumed from; the run may replace it");
    if (is_latest(source_)) return;
    write_latest(last_step_);
    move_latest();
  });
}

// If work() fails because a file is damaged, reports where the file is damaged instead of the symptom.
void Checkpoints::locate_damage(const std::function<void()>& work) const {
  try {
    work();
  } catch (const Error&) {
    for (const auto& [name, ignored] : sums_.files()) sums_.verify(source_.string(), name);
    throw;
  }
}

// All ranks together have read all tensors; rank 0 compares their checksums.
void Checkpoints::check_sums(std::vector<TensorFolderReader>& readers) {
  const bool leads = world_.rank() == 0;
  succeed_together(world_, [&] {
    if (!leads) return;
    for (TensorFolderReader& reader : readers) reader.sum_rest();
  });
  std::vector<BlockSums*> files;
  for (TensorFolderReader& reader : readers)
    for (const auto& file : reader.folder().files()) files.push_back(&reader.sums(*file));
  collect_sums(world_, files);
  succeed_together(world_, [&] {
    if (!leads) return;
    with_resume_advice(source_, [&] {
      for (TensorFolderReader& reader : readers)
        for (const auto& file : reader.folder().files())
          sums_.compare(source_.string(), fs::path(file->path()).filename().string(),
                        reader.sums(*file).finished());
    });
  });
}

std::optional<TrainState::Evaluated> Checkpoints::best_with(const TrainState& next) const {
  if (!is_new_best(next.eval_loss, best_)) return best_;
  return TrainState::Evaluated{.step = next.step, .loss = *next.eval_loss};
}

fs::path Checkpoints::unfinished(int64_t step) const {
  return unfinished_name((folder_ / name_of_step(step)).string());
}

void Checkpoints::commit(const TrainState& state, Checksums sums) const {
  const fs::path path = folder_ / name_of_step(state.step), written = unfinished(state.step);
  const auto write = [&](const std::string& name, const std::string& text) {
    write_durable((written / name).string(), text);
    sums.add(name, text);
  };
  for (const TensorFolderLayout& layout : layouts_)
    if (!layout.index_name().empty()) write(layout.index_name(), layout.index_text());
  write(kConfigName, documents_->config_json);
  if (!documents_->adapter_config_json.empty()) write(kAdapterConfigName, documents_->adapter_config_json);
  if (!documents_->adapter_base_json.empty()) write(kAdapterBaseName, documents_->adapter_base_json);
  for (const auto& [name, content] : documents_->tokenizer_files) write(name, content);
  write(TrainState::kFileName, to_json(state));
  write_durable((written / Checksums::kFileName).string(), sums.text());
  sync_folder(written.string());
  write_latest(state.step);  // a full disk fails here, before the checkpoint has its name
  // A checkpoint of this name is from an abandoned history, and `latest` does not name it.
  const fs::path given_up = given_up_name(path);
  const bool replaces = fs::exists(path);
  if (replaces) rename_durable(path.string(), given_up.string());
  rename_durable(written.string(), path.string());
  move_latest();
  try {
    if (replaces) remove_checkpoint(given_up);
    if (keep_ > 0) remove_oldest(state);
  } catch (const std::exception& error) {  // the new checkpoint is complete nevertheless
    log_warning("cannot remove an earlier checkpoint: ", error.what());
  }
}

void Checkpoints::set_newest(const TrainState& state) {
  last_step_ = state.step;
  best_ = state.best;
}

void Checkpoints::write_latest(int64_t step) const {
  write_durable(unfinished_name((folder_ / kLatestName).string()), name_of_step(step) + '\n');
}

void Checkpoints::move_latest() const {
  const std::string path = (folder_ / kLatestName).string();
  rename_durable(unfinished_name(path), path);
}

// Renames a checkpoint before removing it, so that a partly removed one is never taken for complete. The
// checkpoints of an abandoned history, whose steps lie above the newest, go first.
void Checkpoints::remove_oldest(const TrainState& newest) const {
  std::vector<int64_t> steps = steps_in(folder_);
  std::erase_if(steps, [&](int64_t step) { return !is_of_checkpoint(folder_ / name_of_step(step)); });
  std::rotate(steps.begin(), std::upper_bound(steps.begin(), steps.end(), newest.step), steps.end());
  int64_t count = std::ssize(steps);
  for (const int64_t step : steps) {
    if (count <= keep_) return;
    if (step == newest.step || (newest.best && step == newest.best->step)) continue;
    const fs::path path = folder_ / name_of_step(step);
    rename_durable(path.string(), unfinished(step).string());
    remove_checkpoint(unfinished(step));
    --count;
  }
}

}  // namespace flatshard
