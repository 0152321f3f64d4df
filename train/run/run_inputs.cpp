#include "train/run/run_inputs.h"

#include <filesystem>
#include <unistd.h>
#include <utility>

#include "comm/agreement.h"
#include "hub/adapter_base.h"
#include "runtime/byte_progress.h"
#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "runtime/log.h"
#include "runtime/text.h"
#include "text/data/dataset.h"
#include "text/data/kept_files.h"
#include "text/data/records.h"
#include "text/input/table_input.h"
#include "text/input/text_kind.h"
#include "text/jinja/template_date.h"
#include "train/save/checkpoints.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kLongestPreparation{24 * 30};

EncoderOptions encoder_options(const Config& config) {
  return {.tokenizer = tokenizer_folder(config),
          .chat_template = config.data.chat_template,
          .date = config.data.date,
          .text_field = config.data.text_field,
          .train_on = config.data.train_on,
          .image_longest_edge = config.data.image_longest_edge,
          .records = records_of(config.loss)};
}

// A clause about the other files that the folder keeps beside this one; "" if there are none.
std::string describe_others(const std::string& tokens) {
  int64_t count = 0, bytes = 0;
  std::error_code none;
  const fs::path folder = fs::path(tokens).parent_path();
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().filename() == fs::path(tokens).filename()) continue;
    ++count;
    bytes += static_cast<int64_t>(entry.file_size(none));
  }
  if (count == 0) return "";
  const std::string of = folder.parent_path().empty() ? "." : folder.parent_path().string();
  return str("; beside it ", count == 1 ? "is " : "are ", counted(count, "kept file"), " of ",
             human_bytes(bytes), ": prepare --kept ", of, " says which are used");
}

std::string folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

void make_tokens(std::string& path, const DatasetOptions& options, bool is_leader, std::ostream* terminal) {
  if (!fs::is_regular_file(path) || is_token_file(path)) return;
  if (table_kind_of(path) == TableKind::none) {
    check_text_name(path);
    if (!is_text_name(path)) return;
  }
  const std::string tokens = token_file_of(path, options);
  note_use(tokens);
  if (!fs::exists(tokens) && access(folder_of(path).c_str(), W_OK) != 0)
    if (const std::string earlier = earlier_token_file_of(path, options); fs::exists(earlier)) {
      if (is_leader)
        log_info(earlier, ": is used, although an earlier version made it, because ", folder_of(path),
                 " cannot be written");
      path = earlier;
      return;
    }
  if (is_leader && !fs::exists(tokens)) {
    ByteProgress progress(static_cast<int64_t>(fs::file_size(path)), terminal);
    const DatasetCounts counts =
        make_token_file(path, options, tokens, [&](int64_t bytes) { progress.add(bytes); });
    log_info(tokens, ": made from ", path, ": ", counted(counts.samples, noun_of(options.encoder.records)),
             ", ", with_commas(counts.trained), " of ", counted(counts.tokens, "token"),
             " are trained; dropped ", dropped(counts), "; kept for later runs", describe_others(tokens));
    for (const std::string& warning : counts.warnings) log_warning(warning);
  }
  path = tokens;
}

void make_tokens_of(DataFiles& files, const DatasetOptions& options, bool is_leader, std::ostream* terminal) {
  if (auto* const path = std::get_if<std::string>(&files))
    return make_tokens(*path, options, is_leader, terminal);
  std::vector<NamedFile> named = named_files(files);  // keeps the names of the config
  for (NamedFile& file : named) make_tokens(file.path, options, is_leader, terminal);
  files = std::move(named);
}

std::vector<std::string> paths_of(const DataFiles& train, const DataFiles& eval) {
  std::vector<std::string> paths;
  for (const DataFiles* files : {&train, &eval})
    for (const NamedFile& file : named_files(*files)) paths.push_back(file.path);
  return paths;
}

std::string print_of(const std::vector<std::string>& paths, InputPrints& prints) {
  const std::string print = fingerprint(paths);
  prints.earlier[sampled_fingerprint(paths)] = print;
  return print;
}

std::vector<std::string> prints_of(const DataFiles& files, InputPrints& prints) {
  std::vector<std::string> all;
  for (const NamedFile& file : named_files(files)) all.push_back(print_of({file.path}, prints));
  return all;
}

std::string lines_of(const char* key, const std::vector<std::string>& prints) {
  std::string text;
  for (const std::string& print : prints) text += str(key, " = ", print, '\n');
  return text;
}

// The functions below return only files that this rank can find and read. Other files are reported where they
// are needed, on all ranks together.
std::vector<std::string> weights_of(const Config& config) {
  try {
    return config.init_from.empty() ? std::vector<std::string>{} : weights_files(config.init_from);
  } catch (const Error&) {
    return {};
  }
}

std::vector<std::string> inputs_of(const std::string& tokens) {
  try {
    return inputs_of_manifest(manifest_of(tokens));
  } catch (const Error&) {
    return {};
  }
}

std::vector<std::string> texts_of(const DataConfig& data) {
  std::vector<std::string> texts = paths_of(data.train, data.eval);
  std::erase_if(texts, [](const std::string& path) {
    std::error_code none;
    return !fs::is_regular_file(path, none) || access(path.c_str(), R_OK) != 0 || is_token_file(path);
  });
  return texts;
}

// Hashes the files that the fingerprints below need, on all ranks together. Returns whether the ranks must
// compare the initial weights, which they all read.
bool hash_inputs(const RunSetup& setup, const TokenPaths& tokens, SharedSums& sums) {
  const Config& config = setup.config;
  const std::vector<std::string> files = paths_of(tokens.train, tokens.eval);
  sums.sum(files);
  std::vector<std::string> paths;
  for (const std::string& file : files)
    for (const std::string& input : inputs_of(file)) paths.push_back(input);
  const std::vector<std::string> weights = weights_of(config);
  const bool all_read = !config.init_from.empty() && (config.run.resume.empty() || setup.has_adapters()) &&
                        !setup.units.sync_initial_values,
             are_compared = all_read && !sums.are_same(weights);
  if (setup.has_adapters() || config.loss.has_reference() || are_compared)
    paths.insert(paths.end(), weights.begin(), weights.end());
  sums.hash(paths);
  return are_compared;
}

// A checkpoint of an earlier version has the fingerprint of the tokens that this version kept beside a text.
void add_earlier_tokens(const DataFiles& files, const EncoderOptions& encoder, const Config& config,
                        InputPrints& prints) {
  for (const NamedFile& file : named_files(files)) {
    if (!is_kept(file.path)) continue;
    const std::string text = text_of_kept(file.path),
                      earlier =
                          earlier_token_file_of(text, {.encoder = encoder, .columns = config.data.columns});
    if (fs::exists(earlier) && have_same_documents(TokenFile(earlier), TokenFile(file.path)))
      prints.earlier[sampled_fingerprint({earlier})] = fingerprint({file.path});
  }
}

InputPrints agreed_prints(const RunSetup& setup, const TokenPaths& tokens, World& world, SharedSums& sums) {
  const Config& config = setup.config;
  InputPrints prints;
  std::string weights;
  const bool compares_weights = hash_inputs(setup, tokens, sums);
  succeed_together(world, [&] {
    prints.train = prints_of(tokens.train, prints);
    prints.eval = prints_of(tokens.eval, prints);
    if (!config.run.resume.empty())
      for (const DataFiles* files : {&tokens.train, &tokens.eval})
        add_earlier_tokens(*files, encoder_options(config), config, prints);
    if (compares_weights) weights = fingerprint(weights_files(config.init_from));
    if (setup.has_adapters() && !config.init_from.empty() &&
        (!setup.units.sync_initial_values || world.rank() == 0))
      prints.base = print_of(weights_files(config.init_from), prints);
  });
  agree(world,
        str(lines_of("data.train", prints.train), lines_of("data.eval", prints.eval),
            "model.init_from = ", weights, '\n'),
        "the inputs",
        "every rank must read the same files: copy them to all hosts anew, or share a file system");
  return prints;
}

void note_missing_sums(const RunData& data) {
  for (const TokenFile& file : data.files)
    if (const std::string note = file.note_on_sums(); !note.empty()) log_info(note);
}

// The date of the checkpoint that the run resumes from, or else of the first prepared tokens that have one;
// "" if there is none. A file that cannot be read is refused where it is used.
std::string recorded_date(const Config& config) {
  try {
    if (!config.run.resume.empty()) {
      const fs::path checkpoint = checkpoint_named(config.run.resume, config.run.dir);
      const TrainState saved = read_train_state((checkpoint / TrainState::kFileName).string());
      if (const auto date = saved.config.find("data.date");
          date != saved.config.end() && date->second.size() > 2)
        return date->second.substr(1, date->second.size() - 2);  // the value is TOML, with quotes
    }
    for (const NamedFile& file : named_files(config.data.train))
      if (is_token_file(file.path))
        if (const std::string date = date_of_manifest(TokenFile(file.path).manifest()); !date.empty())
          return date;
  } catch (const Error&) {
  }
  return "";
}

}  // namespace

std::string date_of_run(const Config& config, World& world) {
  if (!config.data.date.empty()) return config.data.date;
  std::string date;
  if (world.rank() == 0 && prints_date(encoder_options(config))) {
    date = recorded_date(config);
    if (date.empty()) date = todays_date();
    log_info("data.date: the chat template prints the date, ", date);
  }
  return world.all_gather_texts(date, "data.date").front();
}

TokenPaths make_token_files(const Config& config, World& world, SharedSums& sums, std::ostream* terminal) {
  TokenPaths tokens{.train = config.data.train, .eval = config.data.eval};
  sums.hash(texts_of(config.data));
  world.limit_collectives(kLongestPreparation);
  const DatasetOptions options{.encoder = encoder_options(config), .columns = config.data.columns};
  succeed_together(world, [&] {
    const bool is_leader = world.local_rank() == 0;
    std::ostream* const shown = world.rank() == 0 ? terminal : nullptr;
    make_tokens_of(tokens.train, options, is_leader, shown);
    make_tokens_of(tokens.eval, options, is_leader, shown);
  });
  world.limit_collectives(std::chrono::seconds(config.parallel.timeout_seconds));
  return tokens;
}

RunInputs::RunInputs(const RunSetup& setup, const TokenPaths& tokens, World& world, SharedSums& sums)
    : prints(agreed_prints(setup, tokens, world, sums)), train(tokens.train, setup, false) {
  for (const NamedFile& file : named_files(tokens.eval)) eval.emplace_back(std::vector{file}, setup, true);
  note_missing_sums(train);
  for (const RunData& data : eval) note_missing_sums(data);
}

}  // namespace flatshard
