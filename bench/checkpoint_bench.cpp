#include "bench/checkpoint_bench.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <sstream>
#include <unistd.h>

#include "runtime/host_memory.h"
#include "runtime/memory.h"
#include "runtime/rng.h"
#include "train/save/checkpoints.h"
#include "train/save/initial_weights.h"
#include "train/save/saver.h"
#include "train/step/training_runtime.h"

namespace flatshard::bench {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFolder = "bench-checkpoint";
constexpr int64_t kBlock = int64_t{4} << 20;
constexpr int kReadsOfEach = 3;  // reads of a file: the disk may still be busy with the previous write

// A model with 65 M parameters: 784 MB with their moments.
Config llama(int ranks) {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.run.dir = kFolder;
  c.model = {.family = "llama", .layers = 5, .hidden = 1024, .heads = 8, .ffn = 2816, .vocab = 512};
  c.data.seq_len = 16;
  c.train.steps = 1000;
  c.train.total_batch_size = ranks;
  c.optimizer.lr = 1e-3;
  c.checkpoint.save_every = "1";
  return c;
}

// The time of `work`: the maximum over the ranks.
double time_of(World& world, const std::function<void()>& work) {
  world.barrier("bench");
  const double mine = seconds_of(work);
  const std::vector<double> all = world.all_gather({&mine, 1}, "bench");
  return *std::max_element(all.begin(), all.end());
}

int64_t most_of(World& world, int64_t value) {
  const double mine = static_cast<double>(value);
  const std::vector<double> all = world.all_gather({&mine, 1}, "bench");
  return static_cast<int64_t>(*std::max_element(all.begin(), all.end()));
}

// A plain file. Each rank writes and reads its part with a buffer that is allocated beforehand, like the
// shards of a model.
class PlainFile {
 public:
  PlainFile(World& world, int64_t bytes)
      : bytes_(bytes / world.size()), begin_(bytes_ * world.rank()), memory_(Device::cpu(), bytes_) {
    const RandomStream random(1, "plain file");
    uint32_t* const words = static_cast<uint32_t*>(memory_.data());
    for (int64_t i = 0; i < bytes_ / int64_t{sizeof(uint32_t)}; ++i) words[i] = random.bits(i);
  }

  void write() {
    each_block(O_WRONLY | O_CREAT,
               [&](int file, int64_t at, size_t n) { return pwrite(file, place(at), n, begin_ + at); });
  }
  void read() {
    each_block(O_RDONLY,
               [&](int file, int64_t at, size_t n) { return pread(file, place(at), n, begin_ + at); });
  }
  static fs::path path() { return fs::path(kFolder) / "plain"; }

 private:
  template <class Call>
  void each_block(int flags, Call&& call) {
    const int file = open(path().c_str(), flags | O_CLOEXEC, 0666);
    check(file >= 0, path().string(), ": ", std::strerror(errno));
    for (int64_t at = 0; at < bytes_;) {
      const ssize_t done = call(file, at, static_cast<size_t>(std::min(kBlock, bytes_ - at)));
      check(done > 0, path().string(), ": ", std::strerror(errno));
      at += done;
    }
    if (flags != O_RDONLY) check(fsync(file) == 0, path().string(), ": ", std::strerror(errno));
    close(file);
  }

  char* place(int64_t at) const { return static_cast<char*>(memory_.data()) + at; }

  int64_t bytes_, begin_;
  Memory memory_;
};

// Evicts the files of the folder from the page cache.
void forget(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    check(file >= 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0, entry.path().string(),
          ": cannot be evicted from the page cache");
    close(file);
  }
}

// A training run and its checkpoints.
class Subject {
 public:
  explicit Subject(World& world)
      : world_(world),
        setup_(set_up(llama(world.size()), world)),
        runtime_(setup_, world),
        checkpoints_(setup_, world, false),
        saver_(checkpoints_, runtime_.engine(), nullptr, world),
        async_saver_(checkpoints_, runtime_.engine(), runtime_.staging(), world) {
    runtime_.engine().initialize();
    Stream& compute = runtime_.engine().compute();
    for (const Owned& owned : owned_shards(runtime_.engine()))  // makes some moments nonzero
      for (const Tensor& moment : {owned.state[0], owned.state[1]}) copy(compute, moment, owned.p);
    compute.sync();
    checkpoints_.begin("");
    checkpoints_.plan(runtime_.engine(), documents_);
  }

  std::string latest() const { return str(kFolder, "/step-", step_); }

  Saver::Saved save() { return save(saver_); }
  // Saves asynchronously, from a copy, as in training.
  Saver::Saved save_async() { return save(async_saver_); }
  void load() {
    Checkpoints found(setup_, world_, false);
    found.begin("latest");
    found.plan(runtime_.engine(), documents_);
    found.load(runtime_.engine());
  }
  int64_t staging_bytes() const { return runtime_.memory().staging.peak(); }

 private:
  Saver::Saved save(Saver& saver) {
    ++step_;
    saver.begin({.step = step_,
                 .data_step = step_,
                 .ranks = world_.size(),
                 .log_history = {{.step = step_, .data_step = step_}}});
    return *saver.finish();
  }

  World& world_;
  RunSetup setup_;
  const ModelDocuments documents_ = model_documents(setup_, "", "", world_);
  TrainingRuntime runtime_;
  Checkpoints checkpoints_;
  Saver saver_, async_saver_;
  int64_t step_ = 0;
};

// Starts a run from the weights in a folder, which rank 0 reads for all ranks.
void measure_reading_for_all(World& world, const std::string& folder, CheckpointResult* result) {
  Config config = llama(world.size());
  config.init_from = folder;
  config.parallel.cpu_ram_efficient_loading = true;
  const RunSetup setup = set_up(config, world);
  TrainingRuntime runtime(setup, world);
  Engine& engine = runtime.engine();
  for (const ShardedUnit& unit : engine.units())
    result->largest_unit =
        std::max(result->largest_unit, unit.params().parameter_count() * int64_t{sizeof(float)});
  engine.initialize();  // allocates all of its memory
  const InitialWeights initial = open_initial_weights(setup, world);
  check(reset_peak_memory(), "/proc/self/clear_refs: cannot write");
  const int64_t before = process_memory().resident;
  engine.initialize(values_of_run(setup, initial));
  result->growth = most_of(world, world.rank() == 0 ? 0 : process_memory().peak - before);
}

// Creates the folder, and removes it at the end.
class Folder {
 public:
  explicit Folder(World& world) : world_(world) {
    if (leads()) check(fs::create_directory(kFolder), kFolder, ": exists already; remove it");
    world.barrier("bench");
  }
  ~Folder() {
    std::error_code ignored;
    if (leads()) fs::remove_all(kFolder, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void clear() {
    if (leads()) {
      for (const auto& entry : fs::directory_iterator(kFolder)) fs::remove_all(entry.path());
      sync();  // makes the disk idle before the next write
    }
    world_.barrier("bench");
  }
  void forget_cached() {
    if (leads()) forget(kFolder);
    world_.barrier("bench");
  }

 private:
  bool leads() const { return world_.rank() == 0; }
  World& world_;
};

}  // namespace

CheckpointResult measure_checkpoints(World& world, int samples) {
  Folder folder(world);
  Subject subject(world);
  CheckpointResult result;
  result.ranks = world.size();
  result.samples = samples;
  const int64_t resident = process_memory().resident;
  check(reset_peak_memory(), "/proc/self/clear_refs: cannot write");
  result.bytes = subject.save_async().bytes;
  result.extra_memory = most_of(world, process_memory().peak - resident);
  result.staging = most_of(world, subject.staging_bytes());

  PlainFile plain(world, result.bytes);
  std::vector<double> save, async_save, blocked, plain_write, load, plain_read, save_rates, load_rates;
  for (int i = 0; i < samples; ++i) {
    folder.clear();
    plain_write.push_back(time_of(world, [&] { plain.write(); }));
    save.push_back(time_of(world, [&] { subject.save(); }));
    async_save.push_back(time_of(world, [&] { blocked.push_back(subject.save_async().copying); }));
    for (int turn = 0; turn < kReadsOfEach; ++turn) {
      folder.forget_cached();
      plain_read.push_back(time_of(world, [&] { plain.read(); }));
      load.push_back(time_of(world, [&] { subject.load(); }));
      load_rates.push_back(plain_read.back() / load.back());
    }
    save_rates.push_back(plain_write.back() / save.back());
  }
  if (world.size() > 1) measure_reading_for_all(world, subject.latest(), &result);
  result.save = spread(save);
  result.async_save = spread(async_save);
  result.blocked = spread(blocked);
  result.plain_write = spread(plain_write);
  result.load = spread(load);
  result.plain_read = spread(plain_read);
  result.save_rate = quantile(save_rates, 0.5);
  result.load_rate = quantile(load_rates, 0.5);
  return result;
}

std::string checkpoint_table(const CheckpointResult& r) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(r.bytes) * 1e-6 << " MB from " << r.ranks
      << (r.ranks == 1 ? " rank, " : " ranks, ") << r.samples << " interleaved samples of each\n"
      << "            seconds  p10..p90        MB/s  of plain file\n";
  const auto line = [&](const char* name, const Spread& s, double rate) {
    out << std::left << std::setw(12) << name << std::right << std::setprecision(2) << std::setw(7)
        << s.median << std::setw(7) << s.p10 << ".." << std::left << std::setw(6) << s.p90 << std::right
        << std::setprecision(0) << std::setw(8) << static_cast<double>(r.bytes) * 1e-6 / s.median;
    if (rate > 0) out << std::setw(12) << 100 * rate << '%';
    out << '\n';
  };
  line("save", r.save, r.save_rate);
  line("plain write", r.plain_write, 0);
  line("async save", r.async_save, 0);
  line("load", r.load, r.load_rate);
  line("plain read", r.plain_read, 0);
  out << "an async save blocks a step for " << std::setprecision(3) << r.blocked.median
      << " s; per rank: staging buffer " << std::setprecision(1) << static_cast<double>(r.staging) * 1e-6
      << " MB, memory growth in the first save " << static_cast<double>(r.extra_memory) * 1e-6 << " MB\n";
  if (r.ranks > 1)
    out << "loading published weights through rank 0: other ranks exceed their plan by at most "
        << static_cast<double>(r.growth) * 1e-6 << " MB; the largest unit has "
        << static_cast<double>(r.largest_unit) * 1e-6 << " MB\n";
  return std::move(out).str();
}

}  // namespace flatshard::bench
