#include "tests/comm/random_starts.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <ostream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "hub/resident_model.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "tests/byte_tokenizer.h"
#include "tests/fuzz/dice.h"
#include "tests/small_model.h"
#include "tools/ckpt/ckpt_commands.h"
#include "train/config/config.h"
#include "train/run/trainer.h"

namespace flatshard::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Options = std::vector<std::string>;

const std::string kGolden = str(kSourceDir, "/tests/golden/");
const std::vector<std::string> kTextFamilies{"llama", "qwen2", "qwen3"},
    kImageFamilies{"idefics2", "idefics3", "qwen2_vl", "qwen2_5_vl"};
constexpr std::array kVariants{"", "_other"};  // of a base: models that differ in their values
const std::vector<GgmlType> kGgufTypes{GgmlType::f32, GgmlType::f16, GgmlType::bf16, GgmlType::q8_0};
constexpr int64_t kSequences = 8;

std::string gguf_name(const std::string& base, GgmlType type) { return str(base, '.', type, ".gguf"); }

// What reads images is as large as the files of the family's golden folder say.
ModelConfig config_of(const std::string& family) {
  const bool sees = std::find(kImageFamilies.begin(), kImageFamilies.end(), family) != kImageFamilies.end();
  json golden;
  if (sees)
    golden = json::parse(read_whole_file(kGolden + "image_folders/" + family + "/config.json", 1 << 20));
  // As many tokens as the tokenizers of the folders have, and some more.
  ModelConfig c = small_model(family, !sees ? 264 : family == "idefics2" ? 600 : 464);
  c.hidden = 32;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = c.query_scalar = 8;
  c.ffn = 64;
  c.max_positions = 512;
  if (!sees) return resolved(c);
  if (flatshard::family(family).rope_axes) c.rope_sections = {2, 1, 1};
  c.vision->image_token = golden["image_token_id"];
  c.vision->patch_size = golden["vision_config"]["patch_size"];
  if (golden["vision_config"].contains("image_size"))
    c.vision->image_size = golden["vision_config"]["image_size"];
  return resolved(c);
}

// The folders and GGUF files that runs start from, in the current folder.
void write_bases() {
  StreamSet streams(Device::cpu());
  Stream& compute = streams.add("compute");
  for (const std::vector<std::string>* families : {&kTextFamilies, &kImageFamilies})
    for (const std::string& family : *families)
      for (size_t variant = 0; variant < kVariants.size(); ++variant) {
        const std::string folder = family + kVariants[variant];
        const ResidentModel model(config_of(family), DType::f32, compute);
        fill_random(model, variant == 0 ? 0.1f : 0.11f);
        write_model_folder(folder, model);
        if (families == &kImageFamilies) {
          for (const auto& file : fs::directory_iterator(kGolden + "image_folders/" + family))
            if (file.path().filename() != "config.json") fs::copy(file, folder);
          continue;
        }
        write_byte_tokenizer(folder);
        std::ostringstream said;
        for (const GgmlType type : kGgufTypes)
          export_gguf(folder,
                      {.to = gguf_name(folder, type), .type = type, .pattern = "gpt-2", .modelfile = false},
                      {.out = said, .terminal = nullptr});
      }
}

// Records of a kind: texts, conversations with or without images, pairs, or answers with labels.
enum class Records { texts, chats, images, pairs, labels };

std::string words(Dice& dice, size_t most) {
  static const std::vector<std::string> known{"the ", "fox", "runs ", "over",   " a",
                                              "\n",   "dog", "s ",    "\u00e9", "42"};
  std::string text;
  for (size_t n = 1 + dice.below(most); n > 0; --n) text += dice.of(known);
  return text;
}

json record_of(Records kind, Dice& dice) {
  switch (kind) {
    case Records::texts:
      return {{"text", words(dice, 20)}};
    case Records::pairs:
      return {{"prompt", words(dice, 4)}, {"chosen", words(dice, 6)}, {"rejected", words(dice, 6)}};
    case Records::labels:
      return {{"prompt", words(dice, 4)}, {"completion", words(dice, 6)}, {"label", dice.one_in(2)}};
    default:
      return {{"messages",
               {{{"role", "user"}, {"content", words(dice, 4)}},
                {{"role", "assistant"}, {"content", words(dice, 5)}}}}};
  }
}

// The lines of data.jsonl.
std::string records(Records kind, Dice& dice) {
  std::vector<std::string> lines;
  if (kind == Records::images) {
    std::istringstream golden(read_whole_file(kGolden + "image_folders/chats.jsonl", 1 << 20));
    for (std::string line; std::getline(golden, line);) {
      for (size_t at = 0; (at = line.find("../images/", at)) != line.npos;)
        line.replace(at, 10, kGolden + "images/");
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(dice.below(lines.size() + 1)), line);
    }
    lines.resize(lines.size() - dice.below(4));
  } else {
    for (size_t n = 8 + dice.below(16); n > 0; --n) lines.push_back(record_of(kind, dice).dump());
  }
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

// All that decides the bits of a run.
struct Subject {
  std::string name;
  std::string family, base;  // base: a folder or a GGUF file
  Records kind;
  Options options;
  int64_t lane;

  // The base with other values.
  std::string other_base() const { return family + kVariants[1] + base.substr(family.size()); }
};

Subject subject_of(Dice& dice) {
  const bool sees = dice.one_in(2);
  Subject s{.name = "",
            .family = dice.of(sees ? kImageFamilies : kTextFamilies),
            .base = "",
            .kind = sees
                        ? Records::images
                        : dice.of<Records>({Records::texts, Records::chats, Records::pairs, Records::labels}),
            .options = {},
            .lane = dice.of<int64_t>({1, 1, 2})};
  s.base = sees || dice.one_in(2) ? s.family : gguf_name(s.family, dice.of(kGgufTypes));
  s.name = s.base;
  const auto set = [&](const std::string& option) {
    s.options.push_back(option);
    s.name += ' ' + option.substr(option.find('.') + 1);
  };
  set(str("data.seq_len=", s.family == "idefics2" ? 256 : sees ? 112 : 64));
  set(str("data.packing=", dice.one_in(2) ? "none" : "best_fit"));
  set(str("train.lane_size=", s.lane));
  if (dice.one_in(3)) set("precision.compute=bf16");
  if (s.kind == Records::images) set(str("data.max_patches=", dice.one_in(2) ? 320 : 500));
  if (s.kind == Records::chats || s.kind == Records::pairs || s.kind == Records::labels)
    set("data.chat_template=chatml");
  if (s.kind == Records::pairs) set(str("train.loss=", dice.one_in(2) ? "dpo" : "ipo"));
  if (s.kind == Records::labels) set("train.loss=kto");
  if (dice.one_in(3)) set(str("lora.rank=", 1 + dice.below(3)));
  if (dice.one_in(3)) {
    set("data.eval=data.jsonl");
    set("train.eval_every=2");
  }
  return s;
}

// What changes no bits.
Options division_of(const Subject& subject, Dice& dice, int ranks) {
  Options options;
  const int stages = ranks > 1 && !dice.one_in(4) ? 2 : 1, data_ranks = ranks / stages;
  int64_t at_once = dice.of<int64_t>({1, 2, 4});
  while (at_once * subject.lane * data_ranks > kSequences) at_once /= 2;
  options.push_back(str("train.batch_size_per_device=", at_once * subject.lane));
  options.push_back("train.recompute=" + dice.of<std::string>({"false", "selective", "true"}));
  const std::string strategy = dice.of<std::string>({"full_shard", "no_shard", "shard_grad_op"});
  options.push_back("parallel.strategy=" + strategy);
  if (strategy == "full_shard" && dice.one_in(4)) options.push_back("parallel.offload=true");
  if (stages > 1) {
    options.push_back(str("parallel.stages=", stages));
    const int64_t micro_steps = kSequences / (at_once * subject.lane * data_ranks);
    const bool interleaves = micro_steps % 2 == 0 && dice.one_in(3);
    options.push_back("parallel.schedule=" + (interleaves
                                                  ? std::string("interleaved")
                                                  : dice.of<std::string>({"1f1b", "gpipe", "sequential"})));
  }
  return options;
}

// What another run has left in the folder. Times of modification are put back where a file is changed.
enum class History { none, same, other_records, fewer_records, other_base };
constexpr std::array kHistories{"in a new folder", "the same inputs before", "other records before",
                                "fewer records before", "another base before"};

class Starts {
 public:
  Starts(World& world, uint64_t seed, std::ostream& out) : world_(world), seed_(seed), out_(out) {}

  bool run(int64_t count) {
    for (int64_t number = 0; number < count; ++number) {
      try {
        start(number);
      } catch (const std::exception& error) {
        fail(str("start ", seed_, '.', number, ": ", error.what()));
      }
    }
    if (world_.rank() == 0)
      out_ << count << " starts of seed " << seed_ << ", " << different_ << " differ" << std::endl;
    const double mine = different_;
    return world_.all_gather({&mine, 1}, "differences").front() == 0;
  }

 private:
  void start(int64_t number) {
    Dice of_subject(seed_, "subject", number), of_division(seed_, str("division ", world_.size()), number);
    const Subject subject = subject_of(of_subject);
    const std::string data = records(subject.kind, of_subject);
    const Options division = division_of(subject, of_division, world_.size());
    const auto history = static_cast<History>(of_division.below(kHistories.size()));
    Options whole{str("train.batch_size_per_device=", subject.lane)};
    std::string expected;
    if (world_.size() == 1) {
      write("data.jsonl", data);
      put_base(subject, subject.base);
      expected = train(subject, whole);
      fs::remove_all("start");
    }
    before(history, subject, data, of_division);
    write("data.jsonl", data);
    put_base(subject, subject.base);
    std::string hash = train(subject, division);
    if (world_.rank() != 0) return;
    fs::remove_all("start");
    std::string how = kHistories[static_cast<size_t>(history)];
    for (const std::string& option : division) how += ' ' + option.substr(option.find('.') + 1);
    if (world_.size() > 1) expected = hash;
    if (hash != expected) {
      ++different_;
      out_ << "DIFFERENT start " << seed_ << '.' << number << " (" << how << "): " << hash << '\n';
    }
    out_ << "start " << seed_ << '.' << number << ' ' << subject.name << ": " << expected << std::endl;
  }

  // A run that leaves tokens, and perhaps a reference.
  void before(History history, const Subject& subject, std::string data, Dice& dice) {
    if (history == History::none) return;
    if (history == History::other_records) data = records(subject.kind, dice);
    if (history == History::fewer_records) data = data.substr(0, data.rfind('\n', data.size() - 2) + 1);
    write("data.jsonl", data);
    put_base(subject, history == History::other_base ? subject.other_base() : subject.base);
    train(subject, {str("train.batch_size_per_device=", subject.lane)});
  }

  void write(const std::string& name, const std::string& text) {
    if (world_.rank() != 0) return;
    const fs::path path = fs::path("start") / name;
    fs::create_directories("start");
    const bool known = fs::exists(path);
    const auto time = known ? fs::last_write_time(path) : fs::file_time_type{};
    write_whole_file(path.string(), text);
    if (known) fs::last_write_time(path, time);
  }

  // Copies a base to where the run expects the subject's.
  void put_base(const Subject& subject, const std::string& from) {
    if (world_.rank() != 0) return;
    if (fs::is_regular_file(from)) return write(subject.base, read_whole_file(from, 1 << 24));
    fs::create_directories(fs::path("start") / subject.base);
    for (const auto& file : fs::directory_iterator(from))
      write(fs::path(subject.base) / file.path().filename(), read_whole_file(file.path().string(), 1 << 24));
  }

  // The hash of the weights, on rank 0.
  std::string train(const Subject& subject, const Options& more) {
    world_.barrier("the inputs");
    fs::current_path("start");
    Options overrides{"model.init_from=" + subject.base,
                      "data.train=data.jsonl",
                      "run.dir=run",
                      "run.device=cpu",
                      "log.every=1000",
                      "train.steps=2",
                      str("train.total_batch_size=", kSequences),
                      "optimizer.lr=1e-3",
                      "checkpoint.save_every=0",
                      "parallel.bandwidth_gbps=1"};
    for (const Options* options : {&subject.options, &more})
      overrides.insert(overrides.end(), options->begin(), options->end());
    std::ostringstream out;
    ResolvedRun run = resolve(read_config({.path = "../start.toml", .overrides = overrides}), world_);
    run.loaded.overwrite = true;
    run_training(std::move(run), world_, {.out = out});
    fs::current_path("..");
    world_.barrier("the run");
    const std::string said = std::move(out).str();
    const size_t at = said.rfind("\nweights ");
    return at == said.npos ? "" : said.substr(at + 9, 64);
  }

  World& world_;
  uint64_t seed_;
  std::ostream& out_;
  int different_ = 0;
};

}  // namespace

bool random_starts_hold(World& world, uint64_t seed, int64_t count, std::ostream& out) {
  configure_log(LogLevel::quiet, world.rank(), world.size());
  const fs::path before = fs::current_path();
  const std::string mine = (fs::temp_directory_path() / str("random_starts_", getpid())).string();
  const std::string folder = world.all_gather_texts(mine, "the folder").front();
  if (world.rank() == 0) {
    fs::create_directories(folder);
    fs::current_path(folder);
    write_bases();
    write_whole_file("start.toml", "[run]\nthreads = 1\n");
    fs::create_directories("start");
  }
  world.barrier("the bases");
  fs::current_path(folder);
  const bool held = Starts(world, seed, out).run(count);
  fs::current_path(before);
  if (world.rank() == 0) fs::remove_all(folder);
  return held;
}

}  // namespace flatshard::test
