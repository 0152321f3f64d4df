#include <filesystem>
#include <fstream>

#include "tests/test.h"
#include "train/config/fields.h"

using namespace flatshard;

namespace {

// A config file that is removed after the test.
class TempFile {
 public:
  explicit TempFile(const std::string& text) : path_(str("config_test_", ++count_, ".toml")) {
    std::ofstream(path_) << text;
  }
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  static inline int count_ = 0;
  std::string path_;
};

std::string error_in(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const TempFile file(text);
  std::string error = test::error_of([&] { load_config(file.path(), overrides); });
  for (size_t at = 0; (at = error.find(file.path())) != std::string::npos;)
    error.replace(at, file.path().size(), "F");
  return error;
}

}  // namespace

TEST_CASE("a value comes from the default, the file or the command line, and the config records which") {
  const TempFile file(
      "[train]\nsteps = 10\n[optimizer]\nlr = 1e-3\nbetas = [0.9, 0.95]\n[model]\ntied = true\n");
  const LoadedConfig loaded = load_config(file.path(), {"optimizer.lr=3e-4", "data.train=corpus.tok"});
  CHECK(loaded.config.train.steps == 10);
  CHECK(loaded.config.optimizer.lr == 3e-4);
  CHECK(loaded.config.optimizer.betas[1] == 0.95);
  CHECK(loaded.config.data.train == DataFiles("corpus.tok"));
  CHECK(loaded.config.model.tied == true);
  CHECK_FALSE(loaded.config.model.window.has_value());
  CHECK(loaded.origin.at("train.steps") == file.path() + ":2");
  CHECK(loaded.origin.at("optimizer.lr") == "command line");
  CHECK(loaded.origin.at("run.seed") == "default");
}

TEST_CASE("a printed config reads back to the same config") {
  const TempFile file(
      "[optimizer]\nlr = 0.1\n[model]\nrope_theta = 500000.0\n[run]\ndir = \"a \\\"b\\\" \\\\c\"\n");
  LoadedConfig first = load_config(file.path(), {"optimizer.no_decay=[\"norm\"]"});
  const std::string printed = to_toml(first.config);
  const TempFile again(printed);
  LoadedConfig second = load_config(again.path(), {});
  CHECK(to_toml(second.config) == printed);
  CHECK(second.config.run.dir == "a \"b\" \\c");
  CHECK(to_toml(first.config, &first.origin).find("# command line") != std::string::npos);
}

TEST_CASE("an unknown key is an error that names the nearest known one") {
  CHECK(error_in("[optimizer]\nlearning_rate = 1.0\n")
            .starts_with("F:2: unknown key optimizer.learning_rate; use optimizer.lr"));
  CHECK(error_in("[train]\nstep = 1\n") ==
        "F:2: unknown key train.step; the nearest known one is train.steps");
  CHECK(error_in("[train]\nlr = 1.0\n") ==
        "F:2: unknown key train.lr; the nearest known one is optimizer.lr");
  CHECK(error_in("", {"model.layer=2"}) ==
        "--model.layer: unknown key model.layer; the nearest known one is model.layers");
}

TEST_CASE("an unknown section is an error even when it is empty") {
  CHECK(error_in("[run]\n[foo]\n").starts_with("F:2: unknown section [foo]; there are [run], [model], "));
  CHECK(error_in("[optimiser]\n") ==
        "F:1: unknown section [optimiser]; the nearest known one is [optimizer]");
  CHECK(error_in("[model.\"a.b\"]\n").starts_with("F:1: unknown section [model.\"a.b\"]; there are "));
  CHECK(error_in("train = {}\ndate = {}\n")
            .starts_with("F:2: unknown section [date]; the nearest known one is [data]"));
  CHECK(error_in("[optimizer]\n[model.rope_scaling]\n").empty());
}

TEST_CASE("a value of the wrong type is an error that states the expected type") {
  CHECK(error_in("[train]\nsteps = \"ten\"\n") ==
        "F:2: train.steps is the string \"ten\", must be a whole number");
  CHECK(error_in("[train]\nsteps = 1.5\n") == "F:2: train.steps is a number, must be a whole number");
  CHECK(error_in("[optimizer]\nbetas = [0.9]\n") ==
        "F:2: optimizer.betas is a list, must be a list of two numbers");
  CHECK(error_in("[data]\nshuffle = 1\n") == "F:2: data.shuffle is a whole number, must be true or false");
  CHECK(error_in("[data]\npacking = true\n") ==
        "F:2: data.packing is true or false, must be one of wrapped, documents, best_fit, best_fit_split, "
        "none");
  CHECK(error_in("", {"optimizer.lr=.5"}) ==
        "--optimizer.lr: optimizer.lr is the string \".5\", must be a number");
  CHECK(error_in("train = 3\n").starts_with("F:1: unknown key train;"));
}

TEST_CASE("a value out of bounds is an error that states the bound") {
  CHECK(error_in("[train]\nsteps = -1\n") == "F:2: train.steps is -1, must be at least 0");
  CHECK(error_in("[optimizer]\nbetas = [0.9, 1.5]\n") == "F:2: optimizer.betas is 1.5, must be at most 1");
  CHECK(error_in("[train]\ntotal_batch_size = 1_000_000_000_000\n") ==
        "F:2: train.total_batch_size is 1000000000000, must be at most 262144");
  CHECK(error_in("[data]\nseq_len = 4294967296\n") ==
        "F:2: data.seq_len is 4294967296, must be at most 2147483647");
  CHECK(error_in("[parallel]\ngroup_size = 4294967296\n") ==
        "F:2: parallel.group_size is 4294967296, must be at most 2147483647");
  CHECK(error_in("[optimizer]\nlr = nan\n") == "F:2: optimizer.lr is nan, must be finite");
  CHECK(error_in("[schedule]\nkind = \"cos\"\n") ==
        "F:2: schedule.kind is \"cos\", must be one of linear, constant, cosine, wsd");
}

TEST_CASE("a value with an unbalanced quote or bracket is refused, not read as a name") {
  for (const std::string value : {"\"abc", "abc\"", "'abc", "[\"norm\"", "{a = 1"}) {
    CAPTURE(value);
    CHECK(error_in("", {"run.dir=" + value})
              .starts_with("--run.dir is " + value + ", which is not valid TOML: "));
  }
  const TempFile file("");
  CHECK(load_config(file.path(), {"data.train=/home/o'brien/a.tok"}).config.data.train ==
        DataFiles("/home/o'brien/a.tok"));
  CHECK(load_config(file.path(), {"data.train=\"a b\""}).config.data.train == DataFiles("a b"));
}

TEST_CASE("betas that are not set are those of the kind of optimizer") {
  const TempFile file("[optimizer]\nkind = \"lion\"\n"), set("[optimizer]\nbetas = [0.9, 0.999]\n");
  using Betas = std::array<double, 2>;
  CHECK(load_config(file.path(), {}).config.optimizer.betas == Betas{0.9, 0.99});
  CHECK(load_config(file.path(), {"optimizer.kind=adamw8bit"}).config.optimizer.betas == Betas{0.9, 0.999});
  CHECK(load_config(set.path(), {"optimizer.kind=paged_lion32bit"}).config.optimizer.betas ==
        Betas{0.9, 0.999});
}

TEST_CASE("a name on the command line may look like a number, a date or a truth value") {
  const TempFile file("");
  for (const std::string name : {"2024", "1e3", "2024-11-22", "true", "0x1F"})
    CHECK(load_config(file.path(), {"run.dir=" + name}).config.run.dir == name);
  CHECK(error_in("[run]\ndir = 2024\n") == "F:2: run.dir is a whole number, must be a string");
}

TEST_CASE("sizes and scales that are strings may be written as numbers") {
  const TempFile file("[precision]\nloss_scale = 1024\n[checkpoint]\nshard_size = 1000000\n");
  LoadedConfig loaded = load_config(file.path(), {});
  CHECK(loaded.config.precision.loss_scale == "1024");
  CHECK(loaded.config.checkpoint.shard_size == "1000000");
  loaded = load_config(file.path(), {"precision.loss_scale=512.5", "checkpoint.shard_size=5000"});
  CHECK(loaded.config.precision.loss_scale == "512.5");
  CHECK(loaded.config.checkpoint.shard_size == "5000");
}

TEST_CASE("run.trace is true or false, or a string, and is printed as such") {
  const TempFile file("[run]\ntrace = true\n");
  LoadedConfig loaded = load_config(file.path(), {});
  CHECK(loaded.config.run.trace == "true");
  CHECK(to_toml(loaded.config).find("\ntrace = true\n") != std::string::npos);
  loaded = load_config(file.path(), {"run.trace=5:9"});
  CHECK(loaded.config.run.trace == "5:9");
  CHECK(config_values(loaded.config)["run.trace"] == "\"5:9\"");
  CHECK(config_values(loaded.config = {})["run.trace"] == "false");
  CHECK(error_in("[run]\ndir = true\n") == "F:2: run.dir is true or false, must be a string");
}

TEST_CASE("a zero byte in a string is refused, since it would truncate a path") {
  CHECK(error_in("[run]\ndir = \"a\\u0000b\"\n") == "F:2: run.dir contains a zero byte");
  CHECK(error_in("[optimizer]\nno_decay = [\"a\\u0000b\"]\n") ==
        "F:2: optimizer.no_decay contains a zero byte");
}

TEST_CASE("what is computed in fp32 is bounded by fp32") {
  const std::string most = ", must be at most 3.40282e+38";
  for (const std::string key : {"lr", "eps", "weight_decay", "grad_clip"})
    CHECK(error_in("", {"optimizer." + key + "=1e39"}) ==
          str("--optimizer.", key, ": optimizer.", key, " is 1e+39", most));
  CHECK(error_in("", {"optimizer.eps=1e-320"}).ends_with(" must be at least 1.17549e-38"));
}

TEST_CASE("a missing file or invalid TOML is a one-line error with the position") {
  CHECK(error_in("[train\nsteps = 1\n").starts_with("F:1: "));
  CHECK(test::error_of([] { load_config("no_such.toml", {}); }).starts_with("no_such.toml"));
  std::string comments;
  for (int line = 0; line < 100000; ++line) comments += "# a\n";
  CHECK(error_in(comments + "[,]\n# b\n# c\n") == "F:100001: is not valid TOML");
  CHECK(error_in(comments + "[,]") == "F:100001: is not valid TOML");
  CHECK(error_in(comments + comments + comments) == "F: has 1200000 bytes, must have at most 1048576");
  CHECK(error_in("", {"steps"}) == "--steps: its value is missing: write --section.key=value");
}

TEST_CASE("any text that a config holds prints on one line and reads back") {
  const TempFile file("[run]\ndir = \"a\\nb\\u0001\\u007f\\t\\\"\\u00e9\"\n");
  LoadedConfig first = load_config(file.path(), {"data.train=\xc3\xa9\n.tok"});
  const TempFile again(to_toml(first.config));
  LoadedConfig second = load_config(again.path(), {});
  CHECK(second.config.run.dir == "a\nb\x01\x7f\t\"\xc3\xa9");
  CHECK(second.config.data.train == DataFiles("\xc3\xa9\n.tok"));
  CHECK(error_in("", {"run.dir=\xff"}) == "--run.dir: the value is not valid UTF-8");
}

TEST_CASE("any finite number that a config holds prints so that it reads back") {
  for (const double value : {4.9e-324, 2.2e-308, 1e300, 1e22, 0.1, 0.30000000000000004, 5e5, 0.0}) {
    Config config;
    config.model.rope_scaling.low_freq_factor = value;
    const TempFile file(to_toml(config));
    CHECK(load_config(file.path(), {}).config.model.rope_scaling.low_freq_factor == value);
  }
}

TEST_CASE("an error is one line, whatever keys and values contain") {
  CHECK(error_in("[train]\n\"a\\nb\" = 1\n").starts_with("F:2: unknown key train.\"a\\u000ab\";"));
  CHECK(error_in("\"run.dir\" = \"a\"\n") ==
        "F:1: unknown key \"run.dir\"; the nearest known one is run.dir");
  CHECK(error_in("", {"run.\n=1"}).starts_with("--\"run.\\u000a\": unknown key \"run.\\u000a\";"));
  CHECK(error_in("", {"a\nb"}) == "--\"a\\u000ab\": its value is missing: write --section.key=value");
  CHECK(error_in("", {"precision.reduce=a\nb"}) ==
        "--precision.reduce: precision.reduce is \"a\\u000ab\", must be one of fp32, bf16");
  CHECK(test::error_of([] { load_config(".", {}); }) == ".: is a folder, must be a config file");
}

TEST_CASE("text that would crash the TOML parser is refused with its line") {
  std::string dots;
  for (int i = 0; i < 100000; ++i) dots += "a.";
  CHECK(error_in("[run]\n[[[a]]]\n") == "F:2: is not valid TOML");
  CHECK(error_in("[run]\n[,]\n[log]\n") == "F:2: is not valid TOML");
  CHECK(error_in("[optimizer]\nbetas = [\n}\n") == "F:3: is not valid TOML");
  CHECK(error_in("\n[" + dots + "a]\n") == "F:2: nested more than 16 levels deep");
  CHECK(error_in("run.dir = '''\n'''\n" + dots + "a = 1\n") == "F:3: nested more than 16 levels deep");
  CHECK(error_in("[run]\ndir = \xc3\xa9\n") ==
        "F:2: a non-ASCII character outside of quotes: quote the key or value");
}

TEST_CASE("quotes and comments may contain dots, brackets and letters of any alphabet") {
  const std::string odd = std::string(50, '.') + std::string(50, '[') + "\xc3\xa9";
  for (const std::string& dir : {"'" + odd + "\\'", "\"" + odd + "\\\"\\\\\"", "'''" + odd + "'\n'''''",
                                 "\"\"\"" + odd + "\"\n\\\"\"\"\"\""}) {
    CAPTURE(dir);
    CHECK(error_in("\xef\xbb\xbf# " + odd + " '\"\nrun.dir = " + dir + " # " + odd + "\nrun.seed = 1\n") ==
          "");
  }
}

TEST_CASE("help names every key with its default and choices") {
  const std::string help = fields_help(HelpLevel::all);
  Config config;
  for (const Field& field : fields(config)) {
    CAPTURE(field.key);
    CHECK(help.find("  " + field.key + " ") != std::string::npos);
    CHECK_FALSE(field.help.empty());
  }
  CHECK(help.find("linear, constant, cosine, wsd [\"linear\"]") != std::string::npos);
}

TEST_CASE("the example of every key is a value that it accepts, on the command line too") {
  const TempFile file("");
  Config defaults;
  for (const Field& field : fields(defaults)) {
    CAPTURE(field.key);
    LoadedConfig loaded;
    CHECK(test::error_of([&] { loaded = load_config(file.path(), {field.key + "=" + example_of(field)}); }) ==
          "");
    CHECK(loaded.origin.at(field.key) == "command line");
  }
}

TEST_CASE("a short help names some twenty keys, each as the long one does") {
  const std::string all = fields_help(HelpLevel::all);
  std::istringstream usual(fields_help(HelpLevel::usual));
  int count = 0;
  for (std::string line; std::getline(usual, line); ++count)
    CHECK(all.find(line + '\n') != std::string::npos);
  CHECK(count >= 18);
  CHECK(count <= 24);
}

TEST_CASE("a key is explained by its line, other spellings and its rows in the pages") {
  const std::string text = explained("optimizer.lr");
  CHECK(text.find("peak learning rate") != std::string::npos);
  CHECK(text.find("[optimizer]  lr = 2e-4") != std::string::npos);
  CHECK(text.find("learning_rate") != std::string::npos);
  CHECK(text.find("learning rate may then jump") != std::string::npos);
  CHECK(explained("data.packing").find("wrapped, documents, best_fit, best_fit_split, none") !=
        std::string::npos);
  CHECK(explained("data.packing").find("configs/DATA.md") != std::string::npos);
  CHECK(explained("lora").find("  lora.rank ") != std::string::npos);
  CHECK(explained("lora").find("  quant.base ") == std::string::npos);
  CHECK(test::error_of([] { explained("optimizer.lrr"); }).find("optimizer.lr") != std::string::npos);
}

TEST_CASE("every name of a choice is stored and printed as itself") {
  const TempFile file("");
  Config config;
  int count = 0;
  for (const Field& field : fields(config))
    for (const std::string& name : field.names()) {
      LoadedConfig loaded = load_config(file.path(), {field.key + "=" + name});
      const bool is_flag = field.spelling == Spelling::or_flag && (name == "true" || name == "false");
      CHECK(config_values(loaded.config).at(field.key) == (is_flag ? name : quoted(name)));
      ++count;
    }
  CHECK(count > 50);
}

TEST_CASE("a model takes its family's defaults for keys that the config omits") {
  ModelConfig c{.family = "qwen2", .layers = 2, .hidden = 64, .heads = 4, .vocab = 256};
  c = resolved(c);
  CHECK(c.qkv_bias == true);
  CHECK(c.kv_heads == 4);
  CHECK(c.head_dim == 16);
  CHECK(c.ffn == 256);
  CHECK(c.tied == false);
  CHECK(resolved({.family = "gpt2", .layers = 1, .hidden = 8, .heads = 2, .vocab = 9}).tied == true);
}

TEST_CASE("an impossible model is an error that names the sizes") {
  const auto error = [](ModelConfig c) { return test::error_of([&] { resolved(c); }); };
  CHECK(error({.family = "bert"}) ==
        "model.family is \"bert\", must be one of llama, mistral, qwen2, qwen3, gpt2, "
        "gemma2, gemma3, phi3, granite, glm4, olmo2, smollm3, qwen3_moe, qwen2_moe, mixtral, olmoe, "
        "granitemoe, glm4_moe, gpt_oss, idefics2, idefics3, smolvlm, qwen2_vl, qwen2_5_vl");
  const ModelConfig llama{.layers = 1, .hidden = 8, .heads = 1, .vocab = 5};
  const auto with_key = [&](auto&& change) {
    ModelConfig c = llama;
    change(c);
    return error(c);
  };
  const auto no_experts = [](const char* key) {
    return str("model.", key,
               " is set, but model.family = llama has no experts: take qwen3_moe, qwen2_moe, mixtral, olmoe, "
               "granitemoe, glm4_moe or gpt_oss, or remove it");
  };
  CHECK(error(llama) == "");
  CHECK(with_key([](ModelConfig& c) { c.experts = 4; }) == no_experts("experts"));
  CHECK(with_key([](ModelConfig& c) { c.experts_per_token = 2; }) == no_experts("experts_per_token"));
  CHECK(with_key([](ModelConfig& c) { c.expert_ffn = 64; }) == no_experts("expert_ffn"));
  CHECK(with_key([](ModelConfig& c) { c.norm_topk = true; }) == no_experts("norm_topk"));
  CHECK(with_key([](ModelConfig& c) { c.shared_ffn = 8; }) == no_experts("shared_ffn"));
  CHECK(with_key([](ModelConfig& c) { c.dense_blocks = {0}; }) == no_experts("dense_blocks"));
  const ModelConfig mixture{.family = "mixtral",
                            .layers = 2,
                            .hidden = 16,
                            .heads = 2,
                            .ffn = 16,
                            .vocab = 5,
                            .experts = 4,
                            .experts_per_token = 2};
  const auto with = [&](auto&& change) {
    ModelConfig c = mixture;
    change(c);
    return error(c);
  };
  CHECK(error(mixture) == "");
  CHECK(
      with([](ModelConfig& c) { c.experts = 0; }).starts_with("model.experts is 0, must be from 1 to 4096"));
  CHECK(with([](ModelConfig& c) { c.experts_per_token = 5; }) ==
        "model.experts_per_token is 5, must be from 1 to model.experts = 4");
  CHECK(with([](ModelConfig& c) { c.expert_ffn = 20; }) ==
        "model.expert_ffn = 20 times model.hidden = 16 must be a multiple of 256, a block of 8-bit moments");
  CHECK(with([](ModelConfig& c) {
          c.dense_blocks = {2};
        }).starts_with("model.dense_blocks has 2, must be from 0 to 1"));
  CHECK(error({.layers = 1, .hidden = 10, .heads = 3, .vocab = 5}) ==
        "model.heads = 3 does not divide model.hidden = 10; change one of them or set model.head_dim");
  CHECK(error({.layers = 1, .hidden = 8, .heads = 4, .kv_heads = 3, .vocab = 5}) ==
        "model.kv_heads = 3 does not divide model.heads = 4");
  CHECK(error({.layers = 1, .hidden = 6, .heads = 2, .vocab = 5}) ==
        "model.head_dim = 3 must be even for rotary positions");
  CHECK(error({.hidden = 8, .heads = 2, .vocab = 5}) == "model.layers is 0, must be positive");
  CHECK(error({.layers = 1, .hidden = int64_t{1} << 62, .heads = 1, .vocab = 5}) ==
        "model.hidden is 4611686018427387904, must be at most 1048576");
  CHECK(error({.layers = 1, .hidden = 8, .heads = 1, .ffn = 1 << 30, .vocab = 5}) ==
        "model.ffn is 1073741824, must be at most 4194304");
  CHECK(error({.layers = 1 << 20, .hidden = 8, .heads = 1, .vocab = 5}) ==
        "model.layers is 1048576, must be at most 4096");
  CHECK(error({.layers = 1, .hidden = 8, .heads = 2048, .head_dim = 1024, .vocab = 5}) ==
        "model.heads = 2048 times model.head_dim = 1024 is 2097152, must be at most 1048576");
}

TEST_CASE("all problems of a file and of the command line are reported, in their order") {
  CHECK(error_in("[train]\nstep = 1\nlane_size = -1\n[data]\nshuffle = 1\n[optimiser]\n",
                 {"optimizer.lr=fast", "model.tied=1"}) ==
        "F:2: unknown key train.step; the nearest known one is train.steps\n"
        "F:3: train.lane_size is -1, must be at least 0\n"
        "F:5: data.shuffle is a whole number, must be true or false\n"
        "F:6: unknown section [optimiser]; the nearest known one is [optimizer]\n"
        "--optimizer.lr: optimizer.lr is the string \"fast\", must be a number\n"
        "--model.tied: model.tied is a whole number, must be true or false");
}

TEST_CASE("of steps and epochs, the command line replaces what the file says") {
  const TempFile file("[train]\nsteps = 500\n[schedule]\nwarmup_ratio = 0.1\n");
  const LoadedConfig loaded = load_config(file.path(), {"train.epochs=2", "schedule.warmup_steps=7"});
  CHECK(loaded.config.train.steps == 0);
  CHECK(loaded.config.train.epochs == 2);
  CHECK(loaded.origin.at("train.steps") == "default");
  CHECK(loaded.config.schedule.warmup_ratio == 0);
  REQUIRE(loaded.replaced.size() == 2);
  CHECK(loaded.replaced[0] == "--train.epochs = 2.0 replaces train.steps = 500 of " + file.path() + ":2");
  CHECK(load_config(file.path(), {"train.epochs=0"}).config.train.steps == 500);
  const LoadedConfig both = load_config(file.path(), {"train.epochs=2", "train.steps=5"});
  CHECK(both.config.train.steps == 5);
  CHECK(both.config.train.epochs == 2);
  CHECK(both.replaced.empty());
}

TEST_CASE("a YAML or JSON file is refused with the format that a config has") {
  std::ofstream("config_test.yaml") << "learning_rate: 1e-4\n";
  CHECK(test::error_of([] { load_config("config_test.yaml", {}); })
            .ends_with(
                "; a config is a TOML file, such as configs/tiny.toml; train takes a file of accelerate with "
                "--accelerate, beside it"));
  std::filesystem::remove("config_test.yaml");
}

TEST_CASE("files of data keep their form and order when a config is printed and read again") {
  for (const char* value :
       {"\"a.tok\"", "[\"b.tok\", \"a.tok\"]", "{\"zebra\" = \"b.tok\", \"ape\" = \"a.tok\"}"}) {
    const TempFile file(str("[data]\ntrain = ", value, "\nweights = [0.5, 2]\n"));
    LoadedConfig first = load_config(file.path(), {});
    const std::string text = to_toml(first.config);
    CHECK(text.find(str("train = ", value, "\nweights = [0.5, 2.0]\n")) != std::string::npos);
    const TempFile printed(text);
    CHECK(load_config(printed.path(), {}).config.data.train == first.config.data.train);
    CHECK(load_config(printed.path(), {str("data.eval=", value)}).config.data.eval ==
          first.config.data.train);
  }
  const TempFile section("[data.train]\nzebra = \"b.tok\"\nape = \"a.tok\"\n");
  const std::vector<NamedFile> files = named_files(load_config(section.path(), {}).config.data.train);
  CHECK(files == std::vector<NamedFile>{{"zebra", "b.tok"}, {"ape", "a.tok"}});
}

TEST_CASE("files are called as they are told apart") {
  const auto names = [](const std::vector<std::string>& paths) {
    std::string text;
    for (const NamedFile& file : named_files(paths)) text += (text.empty() ? "" : " ") + file.name;
    return text;
  };
  CHECK(names({"data/web.jsonl.gz", "/x.y/code.tok"}) == "web code");
  CHECK(names({"web/train.jsonl", "code/train.jsonl"}) == "web/train code/train");
  CHECK(names({"train.jsonl", "train.txt"}) == "train-1 train-2");
  CHECK(names({".hidden", "a b.tok"}) == ".hidden a_b");
}
