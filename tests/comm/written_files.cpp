#include "tests/comm/written_files.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <unistd.h>
#include <utility>

#include "checkpoint/checksums.h"
#include "runtime/log.h"
#include "runtime/whole_file.h"
#include "tests/workshop.h"
#include "tools/ckpt/ckpt_commands.h"
#include "train/report/metrics.h"
#include "train/run/trainer.h"
#include "train/save/train_state.h"

namespace flatshard::test {
namespace {

namespace fs = std::filesystem;
using Options = std::vector<std::string>;

constexpr const char* kModelKeys[] = {"model.layers=4", "model.hidden=16", "model.heads=2", "model.ffn=24"};

struct Subject {
  std::string name;
  Options options{};
};

Options operator+(Options a, const Options& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The last ones freeze whole stages: the first of two, or the last.
std::vector<Subject> subjects() {
  const Options lora{"model.init_from=base/model", "lora.rank=3", "lora.dropout=0.1"},
      tied_lora{"model.init_from=tied/model", "lora.rank=3"},
      nf4 = lora + Options{"quant.base=nf4", "quant.block=32"};
  std::vector<Subject> all{
      {"full", {}},
      {"full, tied", {"model.tied=true"}},
      {"full, no_decay of v", {"optimizer.no_decay=[\"norm\", \"*v_proj*\"]"}},
      {"LoRA", lora},
      {"LoRA, bf16", lora + Options{"precision.compute=bf16"}},
      {"LoRA, tied", tied_lora},
      {"LoRA and lm_head in full", lora + Options{"lora.save_modules=[\"lm_head\"]"}},
      {"LoRA and tied embeddings in full", tied_lora + Options{"lora.save_modules=[\"embed_tokens\"]"}},
      {"LoRA on a larger vocabulary", lora + Options{"model.vocab=60"}},
      {"QLoRA, NF4", nf4},
      {"QLoRA, NF4, double", nf4 + Options{"quant.double=true"}},
      {"QLoRA, FP4", lora + Options{"quant.base=fp4", "quant.block=32"}},
      {"frozen: q and norms of some blocks",
       {"model.trainable=[\"*layers.1.*q_proj*\", \"*layers.2.*norm*\"]"}},
      {"frozen: all but the head", {"model.trainable=[\"lm_head*\"]"}},
      {"frozen: all but the first block", {"model.trainable=[\"*layers.0.*\"]"}},
      {"frozen: all but tied embeddings", {"model.tied=true", "model.trainable=[\"*embed*\"]"}},
      {"frozen: all but block 0, rank 0 initializes",
       {"model.trainable=[\"*layers.0.*\"]", "parallel.sync_module_states=true"}},
      {"frozen: all but the head, rank 0 initializes",
       {"model.trainable=[\"lm_head*\"]", "parallel.sync_module_states=true"}}};
  for (const OptimizerKind& kind : optimizer_kinds().subspan(1))
    all.push_back({str("full, ", kind.name), {str("optimizer.kind=", kind.name), "model.hidden=64"}});
  return all;
}

struct Shape {
  std::string name;
  Options options;
};

// The ways to divide this number of ranks.
std::vector<Shape> shapes(int ranks) {
  std::vector<Shape> all;
  for (const char* schedule : {"1f1b", "gpipe", "sequential", "interleaved"})
    all.push_back({str("2 stages ", schedule), {"parallel.stages=2", str("parallel.schedule=", schedule)}});
  all[1].options.push_back("train.recompute=true");
  if (ranks < 4) return all;
  const char* strategies[] = {"no_shard", "zero1", "shard_grad_op", "hybrid"};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].name += str(", ", strategies[i]);
    all[i].options.push_back(str("parallel.strategy=", strategies[i]));
  }
  all[3].options.push_back("parallel.group_size=1");
  all.push_back({"2 stages, offloaded", {"parallel.stages=2", "parallel.offload=true"}});
  all.push_back({"4 stages", {"parallel.stages=4"}});
  return all;
}

std::string contents(const fs::path& file) { return read_whole_file(file.string(), 1 << 24); }

// The config without its model, which a published folder has.
void write_published_config() {
  const std::string all = contents("config.toml");
  const size_t model = all.find("[model]"), data = all.find("[data]");
  write_whole_file("published.toml", all.substr(0, model) + all.substr(data));
}

std::string hash_in(const std::string& output) {
  const size_t at = output.rfind("\nweights ");
  return at == std::string::npos ? "" : output.substr(at + 9, 64);
}

class Comparison {
 public:
  Comparison(World& world, std::ostream& out) : world_(world), out_(out) {}

  bool run(bool all_shapes) {
    train("base", {"train.steps=1", "checkpoint.save_every=0"});
    train("tied", {"train.steps=1", "checkpoint.save_every=0", "model.tied=true"});
    size_t turn = 0;
    for (const Subject& subject : subjects()) {
      const Options saving = subject.options + Options{"checkpoint.save_every=2"};
      const std::string hash = train("one", saving);
      std::vector<Shape> chosen = shapes(world_.size());
      if (!all_shapes) chosen = {chosen[turn++ % chosen.size()]};
      for (const Shape& shape : chosen) compare(subject.name, shape, saving, hash);
    }
    if (world_.rank() == 0) out_ << settings_ << " settings, " << different_ << " differ" << std::endl;
    const double mine = different_;
    const std::vector<double> all = world_.all_gather({&mine, 1}, "differences");
    return all.front() == 0;
  }

 private:
  // The hash of the weights, on rank 0.
  std::string train(const std::string& folder, const Options& more) {
    world_.barrier("the run before");
    Options overrides(std::begin(kModelKeys), std::end(kModelKeys));
    overrides = overrides + Options{"run.dir=" + folder, "train.steps=4",      "run.threads=1",
                                    "log.every=1000",    "train.eval_every=2", "parallel.bandwidth_gbps=1"};
    for (const std::string& option : more) {  // the later one of two counts
      const std::string key = option.substr(0, option.find('=') + 1);
      std::erase_if(overrides, [&](const std::string& o) { return o.starts_with(key); });
      overrides.push_back(option);
    }
    const bool published = std::any_of(more.begin(), more.end(),
                                       [](const std::string& o) { return o.starts_with("model.init_from"); });
    if (published)  // the folder has them
      std::erase_if(overrides, [](const std::string& o) {
        return std::find(std::begin(kModelKeys), std::end(kModelKeys), o) != std::end(kModelKeys);
      });
    std::ostringstream out;
    const std::string path = published ? "published.toml" : "config.toml";
    ResolvedRun run = resolve(read_config({.path = path, .overrides = overrides}), world_);
    run.loaded.overwrite = run.loaded.config.run.resume.empty();
    if (world_.rank() == 0 && !run.loaded.overwrite) fs::remove_all(folder);
    world_.barrier("the folder");
    run_training(std::move(run), world_, {.out = out});
    return hash_in(out.str());
  }

  // Trains in stages, and on to the end from step 2 of either run in the other's way.
  void compare(const std::string& subject, const Shape& shape, const Options& options,
               const std::string& hash) {
    std::vector<std::string> hashes{train("staged", options + shape.options)};
    hashes.push_back(train("to_one", options + Options{"run.resume=staged/step-2"}));
    hashes.push_back(train("to_stages", options + shape.options + Options{"run.resume=one/step-2"}));
    if (world_.rank() != 0) return;
    std::set<std::string> differences;
    for (const std::string& found : hashes)
      if (found != hash) differences.insert("weights");
    size_t files = 0;
    for (const char* run : {"staged", "to_one", "to_stages"})
      for (const char* folder : {"step-2", "step-4", "model", "adapter"})
        if (fs::exists(fs::path("one") / folder) &&
            (run == std::string("staged") || folder != std::string("step-2")))
          files += compare_folders(run, folder, differences);
    compare_metrics(differences);
    ++settings_;
    different_ += differences.empty() ? 0 : 1;
    out_ << std::left << std::setw(46) << subject << std::setw(30) << shape.name << std::right << std::setw(3)
         << files << (differences.empty() ? " files equal, sound" : " files, DIFFERENT:");
    for (const std::string& name : differences) out_ << ' ' << name;
    out_ << std::endl;
  }

  // The number of files compared; the train_state.json of a checkpoint records its config and timings.
  size_t compare_folders(const std::string& run, const std::string& folder,
                         std::set<std::string>& differences) {
    const fs::path here = fs::path(run) / folder, there = fs::path("one") / folder;
    std::set<std::string> names;
    for (const fs::path& of : {here, there})
      if (fs::exists(of))
        for (const auto& entry : fs::directory_iterator(of)) names.insert(entry.path().filename().string());
    for (const std::string& name : names) {
      const fs::path a = here / name, b = there / name;
      const bool equal = fs::exists(a) && fs::exists(b) &&
                         (name == TrainState::kFileName  ? same_state(a, b)
                          : name == Checksums::kFileName ? true
                                                         : contents(a) == contents(b));
      if (!equal) differences.insert((here / name).string());
    }
    std::ostringstream report;
    if (!verify(here.string(), {.out = report, .terminal = nullptr}))
      differences.insert(here.string() + " is damaged: " + report.str());
    return names.size();
  }

  static bool same_state(const fs::path& a, const fs::path& b) {
    const std::vector<std::string> lines = differences_of(a, b);
    return std::all_of(lines.begin(), lines.end(), [](const std::string& line) {
      return line.starts_with("config run.") || line.starts_with("config parallel.") ||
             line.starts_with("config train.recompute");
    });
  }
  static std::vector<std::string> differences_of(const fs::path& a, const fs::path& b) {
    return differences(read_train_state(a.string()), read_train_state(b.string()));
  }

  void compare_metrics(std::set<std::string>& differences) {
    const std::vector<StepMetrics> one = read_metrics("one/metrics.jsonl");
    for (const std::string run : {"staged", "to_one", "to_stages"}) {
      const std::vector<StepMetrics> other = read_metrics(run + "/metrics.jsonl");
      const bool equal = std::equal(one.begin(), one.end(), other.begin(), other.end(),
                                    [](const StepMetrics& a, const StepMetrics& b) {
                                      return a.step == b.step && a.loss == b.loss &&
                                             a.grad_norm == b.grad_norm && a.eval_loss == b.eval_loss;
                                    });
      if (!equal) differences.insert(run + "/metrics.jsonl");
    }
  }

  World& world_;
  std::ostream& out_;
  int settings_ = 0, different_ = 0;
};

}  // namespace

bool written_files_hold(World& world, bool all_shapes, std::ostream& out) {
  const fs::path before = fs::current_path();
  const std::string mine = str((fs::temp_directory_path() / "written_files_").string(), getpid());
  const std::string folder = world.all_gather_texts(mine, "the folder").front();
  if (world.rank() == 0) Workshop{folder};
  world.barrier("the folder");
  fs::current_path(folder);
  if (world.rank() == 0) write_published_config();
  const bool held = Comparison(world, out).run(all_shapes);
  fs::current_path(before);
  if (world.rank() == 0) fs::remove_all(folder);
  return held;
}

}  // namespace flatshard::test
