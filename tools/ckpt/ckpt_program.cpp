#include <filesystem>

#include "hub/quantized/quant_state.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "tools/ckpt/ckpt_commands.h"
#include "tools/programs.h"

namespace flatshard {
namespace {

constexpr char kAbout[] =
    "Inspects, verifies and compares checkpoints, and exports them as model folders.\n\n"
    "DIR is a checkpoint (step-20), a model folder (config.json, model.safetensors), a GGUF file, a run "
    "folder,\n"
    "which stands for its latest checkpoint, or RUN/best, its checkpoint with the lowest evaluation loss.";
constexpr char kExitCodes[] =
    "Exit code: 0 on success, 1 if verify finds damage or diff finds a difference, 2 after an error.";

constexpr int kFailed = 2;

struct Words {
  std::string first, second, dtype, shard_size = "5GB";
  std::optional<std::string> base, out;
  std::vector<std::string> folders;
  bool all = false, other_base = false;
  Requantization requantization{};
  std::string storage = "uint8";
  QuantizeOptions quantize{};
  std::string type, pattern;
  bool modelfile = false;
};

// The types of GGUF that can be written.
const std::vector<std::string> kGgufTypes{"f32", "f16", "bf16", "q8_0", "q4_k", "q6_k"};

bool is_gguf_name(const std::string& name) { return name.ends_with(".gguf"); }

ExportOptions export_options(const Words& words) {
  ExportOptions options{
      .to = words.second, .dtype = {}, .shard_bytes = parse_bytes("--shard-size", words.shard_size)};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (words.dtype == name_of(dtype)) options.dtype = dtype;
  return options;
}

QuantizeOptions quantize_options(const Words& words) {
  QuantizeOptions options = words.quantize;
  const int64_t block = options.format.block;
  check(is_four_bit_block(block), "--block is ", block, ", must be a power of two from ",
        kSmallestFourBitBlock, " to ", kLargestFourBitBlock);
  options.storage = *dtype_of_torch_name(words.storage);
  return options;
}

// The subcommands, which share their variables.
class Commands {
 public:
  explicit Commands(const Console& console) : console_(console) {}

  std::vector<Command> all() {
    return {inspect_command(), verify_command(), diff_command(),          best_command(),
            export_command(),  merge_command(),  merge_adapter_command(), quantize_command()};
  }

 private:
  Command inspect_command() {
    return {
        .name = "inspect",
        .about =
            "print the model, step, tokens and sizes of DIR, the checkpoints of a run, or what a GGUF file "
            "contains",
        .options = {dir("DIR", words_.first), all_option("print every tensor too")},
        .run = done([this] { inspect(words_.first, words_.all, console_); })};
  }
  Command verify_command() {
    return {
        .name = "verify",
        .about =
            "check blocks against their checksums and tensors against config.json; list damage and missing "
            "files",
        .options = {dir("DIR", words_.first)},
        .run = [this] { return verify(words_.first, console_) ? 0 : 1; }};
  }
  Command diff_command() {
    return {.name = "diff",
            .about = "compare two DIRs: tensors and training state",
            .options = {dir("A", words_.first), dir("B", words_.second),
                        all_option("print every tensor that differs, and by how much")},
            .run = [this] { return diff(words_.first, words_.second, words_.all, console_) ? 0 : 1; }};
  }
  Command best_command() {
    return {.name = "best",
            .about = "print the checkpoint with the lowest evaluation loss",
            .options = {run_folder()},
            .run = done([this] { print_best(words_.first, console_); })};
  }
  Command export_command() {
    return {
        .name = "export",
        .about = "write a model folder for Hugging Face transformers, or a GGUF file for llama.cpp",
        .options = writing(
            {dir("DIR", words_.first),
             {"OUT",
              &words_.second,
              "folder to create, which must not exist, or FILE.gguf",
              {.type = "", .required = true}},
             {"--type",
              &words_.type,
              "of a GGUF file: type of the weights' values; default: f16. Norms and biases are f32",
              {.choices = kGgufTypes, .excludes = {"--dtype", "--shard-size"}}},
             {"--pattern",
              &words_.pattern,
              "of a GGUF file: llama.cpp's name of the pattern that cuts text into words; default: "
              "recognized",
              {.type = "NAME"}},
             {"--modelfile", &words_.modelfile, "of a GGUF file: write a Modelfile for Ollama beside it"}}),
        .run = done([this] { export_either(); })};
  }
  Command merge_command() {
    return {
        .name = "merge",
        .about =
            "write the best checkpoint of a run, or the latest if none has an evaluation loss, as a complete "
            "model folder, adapters merged into their base",
        .options = writing(
            {run_folder(),
             new_folder(),
             {"--base",
              &words_.base,
              "model folder that the run started from; supplies dtypes, config.json, tokenizer files, "
              "and the tensors that the checkpoint lacks; default for adapters: the recorded base",
              {.type = "DIR"}},
             other_base()}),
        .run = done([this] {
          merge(words_.first, words_.base, words_.other_base, export_options(words_), console_);
        })};
  }
  Command merge_adapter_command() {
    return {.name = "merge-adapter",
            .about = "write a base with a LoRA adapter added to its weights as a model folder",
            .options = writing(
                {{"FOLDERS",
                  &words_.folders,
                  "BASE ADAPTER OUT: model, adapter folder, and folder to create, which must not exist; or "
                  "ADAPTER OUT, if the adapter names its base",
                  {.type = "", .required = true}},
                 out_option(),
                 other_base(),
                 {"--requantize", &words_.requantization.wanted,
                  "keep the formats of 4-bit weights, which rounds them again; default: dequantize them"},
                 {"--force",
                  &words_.requantization.forced,
                  "with --requantize: write the model although rounding changes the weights by more than "
                  "half of what the adapter adds",
                  {.needs = {"--requantize"}}}}),
            .run = done([this] {
              std::vector<std::string> given = words_.folders;
              if (words_.out) given.push_back(*words_.out);
              constexpr char kUsage[] =
                  "merge-adapter takes BASE ADAPTER OUT, or ADAPTER OUT if the adapter names its base";
              check(given.size() == 2 || given.size() == 3, kUsage, ": there ",
                    given.size() == 1 ? "is " : "are ", counted(std::ssize(given), "folder"));
              words_.second = given.back();
              given.pop_back();
              check(!std::filesystem::exists(words_.second), words_.second,
                    ": already exists, and is OUT, the folder to create: ", kUsage);
              merge_adapter(
                  find_model(given.size() == 2 ? given[0] : "", given.back(),
                             {.other = words_.other_base, .as_stored = true, .naming = "before the adapter"}),
                  words_.requantization, export_options(words_), console_);
            })};
  }
  Command quantize_command() {
    return {.name = "quantize",
            .about = "write a model folder with 4-bit linear layers, for transformers and bitsandbytes",
            .options =
                writing({dir("MODEL", words_.first),
                         {"OUT", &words_.second, kNewFolder, {.type = ""}},
                         out_option(),
                         {"--type", choice(&words_.quantize.format.kind), "4-bit type"},
                         {"--block",
                          &words_.quantize.format.block,
                          "elements that share a scale: a power of two",
                          {.shows_default = true}},
                         {"--double", &words_.quantize.format.nested, "quantize the scales too, to 8 bits"},
                         {"--storage",
                          &words_.storage,
                          "dtype that the file declares for packed weights",
                          {.shows_default = true, .choices = {"uint8", "bfloat16", "float16", "float32"}}},
                         {"--skip",
                          &words_.quantize.skip,
                          "linear layer that is not quantized, or module around such layers; may be repeated",
                          {.type = "NAME"}},
                         {"--experts", &words_.quantize.experts,
                          "quantize the experts of a mixture, too: transformers 5 does not read them"}}),
            .run = done([this] {
              check(words_.second.empty() != !words_.out, "quantize takes MODEL OUT, or MODEL --out OUT: ",
                    words_.out ? "both are given" : "OUT is missing");
              if (words_.out) words_.second = *words_.out;
              quantize(words_.first, quantize_options(words_), export_options(words_), console_);
            })};
  }

  void export_either() {
    const bool of_gguf = !words_.type.empty() || !words_.pattern.empty() || words_.modelfile;
    if (!is_gguf_name(words_.second)) {
      check(!of_gguf, "--type, --pattern and --modelfile are for GGUF files: name OUT ", words_.second,
            ".gguf, or omit them");
      return export_model(words_.first, export_options(words_), console_);
    }
    check(words_.dtype.empty(), "--dtype is for model folders: a GGUF file takes --type");
    const GgmlType type = words_.type.empty() ? GgmlType::f16 : *named<GgmlType>(words_.type);
    export_gguf(words_.first,
                {.to = words_.second, .type = type, .pattern = words_.pattern, .modelfile = words_.modelfile},
                console_);
  }

  static Option dir(const char* name, std::string& word) {
    return {name, &word, "checkpoint, model folder, GGUF file or run folder", {.type = "", .required = true}};
  }
  Option run_folder() { return {"RUN", &words_.first, "run folder", {.type = "", .required = true}}; }
  Option new_folder() { return {"OUT", &words_.second, kNewFolder, {.type = "", .required = true}}; }
  Option out_option() { return {"--out", &words_.out, "another way to give OUT", {.type = "OUT"}}; }
  Option all_option(const char* about) { return {"--all", &words_.all, about}; }
  Option other_base() {
    return {"--other-base", &words_.other_base,
            "accept a base with other weights than those that the adapter was trained on"};
  }
  // Adds the options of commands that write a model folder.
  std::vector<Option> writing(std::vector<Option> options) {
    options.push_back({"--dtype",
                       &words_.dtype,
                       "dtype of the weights, rounded to nearest even; default: unchanged",
                       {.choices = {"f32", "bf16", "f16"}}});
    options.push_back(
        {"--shard-size", &words_.shard_size, "maximum tensor bytes per file", {.shows_default = true}});
    return options;
  }
  static std::function<int()> done(std::function<void()> work) {
    return [work = std::move(work)] {
      work();
      return 0;
    };
  }

  static constexpr char kNewFolder[] = "folder to create; must not exist";

  Console console_;
  Words words_;
};

}  // namespace

int run_ckpt(const Arguments& arguments, const Streams& streams) {
  Commands commands({.out = streams.out, .terminal = streams.err_is_terminal ? &streams.err : nullptr});
  const Command program{.name = "ckpt", .about = kAbout, .commands = commands.all(), .footer = kExitCodes};
  return run_program(program, arguments, streams, kFailed);
}

}  // namespace flatshard
