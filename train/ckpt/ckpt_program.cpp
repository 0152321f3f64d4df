#include "train/ckpt/ckpt_program.h"

#include <iostream>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "runtime/program_end.h"
#include "runtime/reason.h"
#include "runtime/standard_streams.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/ckpt/ckpt_commands.h"

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
};

ExportOptions export_options(const Words& words) {
  ExportOptions options{
      .to = words.second, .dtype = {}, .shard_bytes = parse_bytes("--shard-size", words.shard_size)};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (words.dtype == name_of(dtype)) options.dtype = dtype;
  return options;
}

// Declares the subcommands and runs the selected one.
class Commands {
 public:
  Commands(CLI::App& app, const Console& console) : app_(app), console_(console) {
    app.require_subcommand(1);
    app.footer(kExitCodes);
    takes_one("inspect", "DIR",
              "print the model, step, tokens and tensors of DIR, or the checkpoints of a run",
              [this] { inspect(words_.first, console_); });
    takes_one("verify", "DIR",
              "check blocks against their checksums and tensors against config.json; list damage and missing "
              "files",
              [this] { exit_code_ = verify(words_.first, console_) ? 0 : 1; });
    takes_two("diff", "A", "B",
              "compare two DIRs: tensors, with the size of each difference, and training state",
              [this] { exit_code_ = diff(words_.first, words_.second, console_) ? 0 : 1; });
    takes_one("best", "RUN", "print the checkpoint with the lowest evaluation loss", [this] {
      const BestCheckpoint best = best_of(words_.first);
      console_.out << best.path << "  evaluation loss " << best.loss << '\n';
    });
    writes(takes_two("export", "DIR", "OUT", "write a model folder for Hugging Face transformers",
                     [this] { export_model(words_.first, export_options(words_), console_); }));
    CLI::App& merging =
        takes_two("merge", "RUN", "OUT", "write the best checkpoint of a run as a complete model folder",
                  [this] { merge(words_.first, words_.base, export_options(words_), console_); });
    merging
        .add_option("--base", words_.base,
                    "model folder that the run started from; supplies dtypes, config.json, tokenizer files, "
                    "and the tensors that the checkpoint lacks")
        ->type_name("DIR");
    writes(merging);
    CLI::App& adapting = *app.add_subcommand(
        "merge-adapter", "write a base with a LoRA adapter added to its weights as a model folder");
    adapting
        .add_option("FOLDERS", words_.folders,
                    "BASE ADAPTER: model folder and adapter folder; or ADAPTER alone, if its "
                    "adapter_config.json names the folder of the base")
        ->required()
        ->expected(1, 2)
        ->type_name("");
    adapting.add_option("--out", words_.second, "folder to create; must not exist")
        ->required()
        ->type_name("DIR");
    adapting.callback([this] {
      const std::vector<std::string>& given = words_.folders;
      merge_adapter(find_model(given.size() == 2 ? given[0] : "", given.back()), export_options(words_),
                    console_);
    });
    writes(adapting);
  }

  int exit_code() const { return exit_code_; }

 private:
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
    app.parse(argc, argv);
    return end_program("ckpt", commands.exit_code(), out, err, kFailed);
  } catch (const CLI::Success& help) {
    return end_program("ckpt", app.exit(help, out, err), out, err, kFailed);
  } catch (const std::exception& error) {
    err << "ckpt: " << printable(reason_of(error)) << '\n';
  }
  return kFailed;
}

}  // namespace flatshard
