#include "train/run/run_inputs.h"

#include <filesystem>
#include <utility>

#include "comm/agreement.h"
#include "hub/adapter_base.h"
#include "runtime/byte_progress.h"
#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "runtime/log.h"
#include "runtime/text.h"
#include "text/data/dataset.h"
#include "text/data/records.h"
#include "text/input/table_input.h"
#include "text/input/text_kind.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kLongestPreparation{24 * 30};

EncoderOptions encoder_options(const Config& config) {
  return {.tokenizer = tokenizer_folder(config),
          .chat_template = config.data.chat_template,
          .text_field = config.data.text_field,
          .train_on = config.data.train_on,
          .image_longest_edge = config.data.image_longest_edge,
          .records = records_of(config.loss)};
}

// Other token files that runs have made of this text, with other settings or of earlier content; "" if none.
std::string describe_others(const std::string& path, const std::string& tokens) {
  const std::string begin = fs::path(path).filename().string() + '.';
  int64_t count = 0, bytes = 0;
  std::error_code none;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(tokens).parent_path() / ".", none)) {
    const std::string name = entry.path().filename().string();
    const bool is_made =
        name.starts_with(begin) && name.ends_with(".tok") && name.size() == begin.size() + 20;
    if (!is_made || name == fs::path(tokens).filename().string()) continue;
    ++count;
    bytes += static_cast<int64_t>(entry.file_size(none));
  }
  if (count == 0) return "";
  return str("; beside it ", count == 1 ? "is " : "are ", counted(count, "token file"), " of ",
             human_bytes(bytes), " that other settings or contents left, which can be removed: ", path,
             ".*.tok");
}

void make_tokens(std::string& path, const DatasetOptions& options, bool is_leader, std::ostream* terminal) {
  if (!fs::is_regular_file(path) || is_token_file(path)) return;
  if (table_kind_of(path) == TableKind::none) {
    check_text_name(path);
    if (!is_text_name(path)) return;
  }
  const std::string tokens = token_file_of(path, options);
  if (is_leader && !fs::exists(tokens)) {
    ByteProgress progress(static_cast<int64_t>(fs::file_size(path)), terminal);
    const DatasetCounts counts =
        make_token_file(path, options, tokens, [&](int64_t bytes) { progress.add(bytes); });
    log_info(tokens, ": made from ", path, ": ", counted(counts.samples, noun_of(options.encoder.records)),
             ", ", with_commas(counts.trained), " of ", counted(counts.tokens, "token"),
             " are trained; dropped ", dropped(counts), "; kept for later runs",
             describe_others(path, tokens));
    for (const std::string& warning : counts.warnings) log_warning(warning);
  }
  path = tokens;
}

void make_tokens_of(DataFiles& files, const DatasetOptions& options, bool is_leader, std::ostream* terminal) {
  if (auto* const path = std::get_if<std::string>(&files))
    return make_tokens(*path, options, is_leader, terminal);
  std::vector<NamedFile> named = named_files(files);  // by the names that the config has
  for (NamedFile& file : named) make_tokens(file.path, options, is_leader, terminal);
  files = std::move(named);
}

std::vector<std::string> prints_of(const DataFiles& files) {
  std::vector<std::string> prints;
  for (const NamedFile& file : named_files(files)) prints.push_back(fingerprint({file.path}));
  return prints;
}

std::string lines_of(const char* key, const std::vector<std::string>& prints) {
  std::string text;
  for (const std::string& print : prints) text += str(key, " = ", print, '\n');
  return text;
}

InputPrints agreed_prints(const RunSetup& setup, World& world) {
  const Config& config = setup.config;
  check(!named_files(config.data.train).empty(),
        "data.train is \"\", must name a token file: make one with prepare");
  InputPrints prints;
  std::string weights;
  succeed_together(world, [&] {
    prints.train = prints_of(config.data.train);
    prints.eval = prints_of(config.data.eval);
    if (config.init_from.empty()) return;
    const bool are_read = config.run.resume.empty() || setup.has_adapters(),
               all_read = are_read && !setup.units.sync_initial_values;
    if (all_read) weights = weights_fingerprint(config.init_from);
    if (setup.has_adapters() && (all_read || world.rank() == 0))
      prints.base = weights_fingerprint(config.init_from);
  });
  agree(world,
        str(lines_of("data.train", prints.train), lines_of("data.eval", prints.eval),
            "model.init_from = ", weights, '\n'),
        "the inputs",
        "every rank must read the same files: copy them to all hosts anew, or share a file system");
  return prints;
}

}  // namespace

Config with_token_files(Config config, World& world, std::ostream* terminal) {
  world.limit_collectives(kLongestPreparation);
  const DatasetOptions options{.encoder = encoder_options(config), .columns = config.data.columns};
  succeed_together(world, [&] {
    const bool is_leader = world.local_rank() == 0;
    std::ostream* const shown = world.rank() == 0 ? terminal : nullptr;
    make_tokens_of(config.data.train, options, is_leader, shown);
    make_tokens_of(config.data.eval, options, is_leader, shown);
  });
  world.limit_collectives(std::chrono::seconds(config.parallel.timeout_seconds));
  return config;
}

RunInputs::RunInputs(const RunSetup& setup, World& world)
    : prints(agreed_prints(setup, world)), train(setup.config.data.train, setup, false) {
  for (const NamedFile& file : named_files(setup.config.data.eval))
    eval.emplace_back(std::vector{file}, setup, true);
}

}  // namespace flatshard
