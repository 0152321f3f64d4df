#include "train/save/saver.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "comm/agreement.h"
#include "train/save/checkpoint_names.h"
#include "train/save/shard_files.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// One set of files of the checkpoint, and this rank's writer for it.
struct Saver::Part {
  const ShardFiles& files;
  const TensorFolderLayout& layout;
  std::vector<BlockSums> sums;  // sums of the layout's files
  std::optional<TensorFolderWriter> writer;
};

struct Saver::Save {
  TrainState state;
  std::string folder;  // the temporary folder
  std::vector<Part> parts;
  bool made = false;     // whether this rank has made the folder
  bool written = false;  // whether all ranks have written
  double seconds = 0, paused = 0, copying = 0;
};

Saver::Saver(Checkpoints& checkpoints, Engine& engine, Staging* staging, World& world)
    : checkpoints_(checkpoints), engine_(engine), staging_(staging), world_(world) {}

Saver::~Saver() = default;

void Saver::begin(TrainState state) {
  check(!in_flight(), "cannot begin a save while another is in flight");
  if (state.step == checkpoints_.last_step()) return;
  state.best = checkpoints_.best_with(state);
  save_ = std::make_unique<Save>();
  save_->folder = checkpoints_.unfinished(state.step).string();
  save_->state = std::move(state);
  for (size_t i = 0; i < checkpoints_.files().size(); ++i) {
    const TensorFolderLayout& layout = checkpoints_.layouts()[i];
    std::vector<BlockSums> sums;
    for (const auto& file : layout.files()) sums.emplace_back(file.layout.file_bytes());
    save_->parts.push_back(
        {.files = checkpoints_.files()[i], .layout = layout, .sums = std::move(sums), .writer = {}});
  }
  drop_on_error([&] {
    succeed_together(world_, [&] {
      if (staging_) staging_->copy_from(engine_);
      if (!leads()) return;
      remove_checkpoint(save_->folder);
      fs::create_directory(save_->folder);
      save_->made = true;
      open_all(true);
    });
    start([this] { write(); });
  });
  save_->copying = save_->paused;
}

std::optional<TrainState::Evaluated> Saver::best() const {
  return save_ ? save_->state.best : checkpoints_.best();
}

void Saver::open_all(bool create) {
  for (Part& part : save_->parts) part.writer.emplace(save_->folder, part.layout, create, &part.sums);
}

// Writes all of this rank's shards.
void Saver::write() {
  if (!leads()) open_all(false);
  const std::vector<Owned> owned = staging_ ? staging_->copies() : owned_shards(engine_);
  for (Part& part : save_->parts) write_shards(*part.writer, part.files, owned, engine_.compute());
  for (Part& part : save_->parts) part.writer->finish();  // keeps the disk busy while later parts are written
}

void Saver::start(std::function<void()> work) {
  work_ = std::async(staging_ ? std::launch::async : std::launch::deferred,
                     [work = std::move(work)] { return seconds_of(work); });
}

bool Saver::busy() const {
  return work_.valid() && work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

std::optional<Saver::Saved> Saver::advance() {
  check(in_flight(), "no save is in flight");
  double seconds = 0;
  drop_on_error([&] {
    succeed_together(world_, [&] {
      if (work_.valid()) seconds = work_.get();
    });
    const std::vector<double> of_all = world_.all_gather({&seconds, 1}, "seconds of saving");
    save_->seconds += *std::max_element(of_all.begin(), of_all.end());
    if (!save_->written) begin_commit();
  });
  if (!std::exchange(save_->written, true)) return {};
  const std::unique_ptr<Save> done = std::move(save_);
  checkpoints_.set_newest(done->state);
  return Saved{.step = done->state.step,
               .bytes = checkpoints_.bytes(),
               .seconds = done->seconds,
               .paused = done->paused,
               .copying = done->copying};
}

// All ranks have written: rank 0 collects their checksums and commits alone.
void Saver::begin_commit() {
  std::vector<BlockSums*> files;
  for (Part& part : save_->parts)
    for (BlockSums& sums : part.sums) files.push_back(&sums);
  collect_sums(world_, files);
  Checksums sums;
  for (const Part& part : save_->parts)
    for (size_t i = 0; i < part.sums.size(); ++i) sums.add(part.layout.files()[i].name, part.sums[i]);
  if (leads()) start([this, sums = std::move(sums)] { checkpoints_.commit(save_->state, sums); });
}

std::optional<Saver::Saved> Saver::finish() {
  std::optional<Saved> saved;
  while (in_flight()) saved = advance();
  return saved;
}

// Runs part(). An Error, which all ranks throw together, drops the save; no rank's thread is busy then.
void Saver::drop_on_error(const std::function<void()>& part) {
  try {
    save_->paused += seconds_of(part);
  } catch (const Error& error) {
    const std::unique_ptr<Save> given_up = std::move(save_);
    std::error_code ignored;
    if (given_up->made) fs::remove_all(given_up->folder, ignored);
    fail(str("the checkpoint of step ", given_up->state.step, " was not written: ", error.what()));
  }
}

}  // namespace flatshard
