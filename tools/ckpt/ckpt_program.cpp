#include "tools/ckpt/ckpt_program.h"

#include <iostream>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "hub/quantized/quant_state.h"
#include "runtime/program_end.h"
#include "runtime/reason.h"
#include "runtime/standard_streams.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "tools/ckpt/ckpt_commands.h"
#include "train/command_line/arguments.h"
#include "train/command_line/standard_options.h"

namespace flatshard {
namespace {

constexpr char kAbout[] =
    "Inspects, verifies and compares checkpoints, and exports them as model folders.\n\n"
    "DIR is a checkpoint (step-20), a model folder (config.json, model.safetensors), or a run folder, which\n"
    "stands for its latest checkpoint.";
constexpr char kExitCodes[] =
    "Exit code: 0 on success, 1 if verify finds damage or diff finds a difference, 2 after an error.";

constexpr int kFailed = 2;

struct Words {
  std::string first, second, dtype, shard_size = "5GB";
  std::optional<std::string> base;
  std::vector<std::string> folders;
  bool all = false, other_base = false;
  Requantization requantization{};
  std::string storage = "uint8";
  QuantizeOptions quantize{};
};

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

// Declares the subcommands and runs the selected one.
class Commands {
 public:
  Commands(CLI::App& app, const Console& console) : app_(app), console_(console) {
    app.require_subcommand(1);
    app.footer(kExitCodes);
    add_standard_options(app);
    takes_all(takes_one("inspect", "DIR",
                        "print the model, step, tokens and sizes of DIR, or the checkpoints of a run",
                        [this] { inspect(words_.first, words_.all, console_); }),
              "print every tensor too");
    takes_one("verify", "DIR",
              "check blocks against their checksums and tensors against config.json; list damage and missing "
              "files",
              [this] { exit_code_ = verify(words_.first, console_) ? 0 : 1; });
    takes_all(
        takes_two("diff", "A", "B", "compare two DIRs: tensors and training state",
                  [this] { exit_code_ = diff(words_.first, words_.second, words_.all, console_) ? 0 : 1; }),
        "print every tensor that differs, and by how much");
    takes_one("best", "RUN", "print the checkpoint with the lowest evaluation loss",
              [this] { print_best(words_.first, console_); });
    writes(takes_two("export", "DIR", "OUT", "write a model folder for Hugging Face transformers",
                     [this] { export_model(words_.first, export_options(words_), console_); }));
    CLI::App& merging = takes_two(
        "merge", "RUN", "OUT",
        "write the best checkpoint of a run as a complete model folder, adapters merged into their base",
        [this] { merge(words_.first, words_.base, words_.other_base, export_options(words_), console_); });
    merging
        .add_option("--base", words_.base,
                    "model folder that the run started from; supplies dtypes, config.json, tokenizer files, "
                    "and the tensors that the checkpoint lacks; default for adapters: the recorded base")
        ->type_name("DIR");
    takes_other_base(merging);
    writes(merging);
    add_merge_adapter();
    add_quantize();
  }

  int exit_code() const { return exit_code_; }

 private:
  void add_merge_adapter() {
    CLI::App& command = *app_.add_subcommand(
        "merge-adapter", "write a base with a LoRA adapter added to its weights as a model folder");
    command
        .add_option("FOLDERS", words_.folders,
                    "BASE ADAPTER: model folder and adapter folder; or ADAPTER alone, if its "
                    "adapter_config.json names the folder of the base")
        ->required()
        ->expected(1, 2)
        ->type_name("");
    takes_out(command);
    takes_other_base(command);
    auto* requantize = command.add_flag(
        "--requantize", words_.requantization.wanted,
        "keep the formats of 4-bit weights, which rounds them again; default: dequantize them");
    command
        .add_flag("--force", words_.requantization.forced,
                  "with --requantize: write the model although rounding changes the weights by more than "
                  "half of what the adapter adds")
        ->needs(requantize);
    command.callback([this] {
      const std::vector<std::string>& given = words_.folders;
      merge_adapter(find_model(given.size() == 2 ? given[0] : "", given.back(),
                               {.other = words_.other_base, .as_stored = true}),
                    words_.requantization, export_options(words_), console_);
    });
    writes(command);
  }
  void add_quantize() {
    CLI::App& command = takes_one(
        "quantize", "MODEL",
        "write a model folder with 4-bit linear layers, for transformers and bitsandbytes",
        [this] { quantize(words_.first, quantize_options(words_), export_options(words_), console_); });
    takes_out(command);
    add_choice(command, "--type", choice(&words_.quantize.format.kind), "4-bit type");
    command
        .add_option("--block", words_.quantize.format.block, "elements that share a scale: a power of two")
        ->capture_default_str();
    command.add_flag("--double", words_.quantize.format.nested, "quantize the scales too, to 8 bits");
    command.add_option("--storage", words_.storage, "dtype that the file declares for packed weights")
        ->check(CLI::IsMember({"uint8", "bfloat16", "float16", "float32"}))
        ->capture_default_str();
    command
        .add_option("--skip", words_.quantize.skip,
                    "linear layer that is not quantized, or module around such layers; may be repeated")
        ->type_name("NAME")
        ->expected(1)
        ->take_all();
    writes(command);
  }
  template <class Work>
  CLI::App& takes_one(const char* name, const char* first, const char* about, Work work) {
    CLI::App& command = *app_.add_subcommand(name, about);
    positional(command, first, words_.first);
    command.callback(work);
    return command;
  }
  template <class Work>
  CLI::App& takes_two(const char* name, const char* first, const char* second, const char* about, Work work) {
    CLI::App& command = takes_one(name, first, about, work);
    positional(command, second, words_.second);
    return command;
  }
  static void positional(CLI::App& command, const std::string& name, std::string& word) {
    const char* const about = name == "RUN"   ? "run folder"
                              : name == "OUT" ? "folder to create; must not exist"
                                              : "checkpoint, model folder or run folder";
    command.add_option(name, word, about)->required()->type_name("");
  }
  void takes_all(CLI::App& command, const char* about) { command.add_flag("--all", words_.all, about); }
  void takes_other_base(CLI::App& command) {
    command.add_flag("--other-base", words_.other_base,
                     "accept a base with other weights than those that the adapter was trained on");
  }
  void takes_out(CLI::App& command) {
    command.add_option("--out", words_.second, "folder to create; must not exist")
        ->required()
        ->type_name("DIR");
  }
  void writes(CLI::App& command) {
    command
        .add_option("--dtype", words_.dtype,
                    "dtype of the weights, rounded to nearest even; default: unchanged")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}));
    command.add_option("--shard-size", words_.shard_size, "maximum tensor bytes per file")
        ->capture_default_str();
  }

  CLI::App& app_;
  Console console_;
  Words words_;
  int exit_code_ = 0;
};

}  // namespace

int ckpt_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  CLI::App app(kAbout, "ckpt");
  reserve_standard_streams();
  survive_file_limits();
  const bool watched = &err == &std::cerr && isatty(STDERR_FILENO);
  Commands commands(app, {.out = out, .terminal = watched ? &err : nullptr});
  try {
    parse_arguments(app, arguments_of(argc, argv));
    return end_program("ckpt", commands.exit_code(), out, err, kFailed);
  } catch (const CLI::Success& help) {
    return end_program("ckpt", app.exit(help, out, err), out, err, kFailed);
  } catch (const std::exception& error) {
    err << "ckpt: " << printable(reason_of(error)) << '\n';
  }
  return kFailed;
}

}  // namespace flatshard
