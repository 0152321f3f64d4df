#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <unistd.h>
#include <utility>

#include <climits>

#include "checkpoint/new_folder.h"
#include "hub/gguf/gguf_tokenizer.h"
#include "runtime/byte_progress.h"
#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "text/data/dataset.h"
#include "text/data/kept_files.h"
#include "text/images/resize.h"
#include "text/input/table_input.h"
#include "text/jinja/template_date.h"
#include "text/tokenizer/bpe_trainer.h"
#include "tools/programs.h"
#include "tools/sample_picture.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string out;
  std::optional<std::string> eval_out;
  double eval_share = 0.05;
  EncoderOptions encoder;
  int64_t train_tokenizer = 0;  // vocabulary of the tokenizer to train; 0: none
  std::string split = "none";
  std::vector<std::string> columns;
  bool skip_bad = false;
  int64_t most_tokens = 0;
  std::vector<double> weights;
  int64_t show = 0;
  std::optional<std::string> files_from;
  bool null = false;  // names in files_from end with a zero byte
  bool kept = false;  // lists the files that runs keep in the folders `files`
  bool remove_unused = false;
  int64_t unused_days = 0;  // 0: age does not matter
  std::vector<std::string> files;
};

constexpr double kLeastTrainedVocab = 257, kMostTrainedVocab = 1 << 20;
constexpr double kMostWeight = 1000;
constexpr double kMostDays = 36500;
constexpr const char* kEndOfText = "<|endoftext|>";

TextSplit split_of(const Options& o) { return o.split == "none" ? TextSplit::none : TextSplit::blank_lines; }

std::vector<std::string> outputs(const Options& o) {
  return o.eval_out ? std::vector{o.out, *o.eval_out} : std::vector{o.out};
}

constexpr const char* kDescription =
    "Converts text and chats to token files for train.\n\n"
    "A .jsonl or .json file has JSON objects, one per line or in one array: a text field, a conversation\n"
    "(messages, conversations as in ShareGPT, or instruction, input and output as in Alpaca), or a prompt "
    "with its\n"
    "completion. Any other file is plain text in UTF-8: one document, or several separated by blank lines "
    "with\n"
    "--split blank-lines. Both may be compressed with gzip or zstd (.gz, .zst). The rows of a Parquet or "
    "Arrow\n"
    "table, whatever its name, are such objects, too. Files, documents and rows keep their order.\n\n"
    "Conversations may show images, by paths relative to their file, or by their bytes: prepare "
    "checks that\n"
    "they decode, and writes where they are. Images in records go to FILE.images beside the token file.\n\n"
    "With --records pairs, a record has a prompt, \"chosen\" and \"rejected\", and becomes two documents. "
    "With\n"
    "--records rollouts it has a prompt and a completion, or prompt_ids and completion_ids; an advantage, "
    "advantages,\n"
    "or a reward and its group; and perhaps logprobs. FILE.advantages and FILE.logprobs beside the token "
    "file "
    "have\n"
    "their values.\n\n"
    "Of a text all tokens are trained, of a prompt with a completion the completion, of a conversation the\n"
    "assistant's turns. Conversations are rendered by the chat template of the tokenizer's folder, or "
    "another.\n"
    "Samples without tokens, or without a token to train on, are dropped and counted.\n\n"
    "With --eval-out, floor(n SHARE) of the first n samples go there, evenly spaced. The split depends on "
    "the\n"
    "sample's index alone, so the same input is always split the same way.\n";
constexpr const char* kFooter =
    "Output files appear under their names only after everything has succeeded.\n\n"
    "  prepare --out corpus.tok --eval-out eval.tok stories.jsonl\n"
    "  prepare --out chats.tok --tokenizer Qwen2.5-0.5B-Instruct --show 3 chats.jsonl\n"
    "  prepare --out photos.tok --tokenizer SmolVLM-256M-Instruct --show 1 photos.jsonl\n"
    "  prepare --out pairs.tok --records pairs --tokenizer Qwen2.5-0.5B-Instruct preferences.parquet\n"
    "  prepare --out corpus.tok --columns text train-*.parquet\n"
    "  prepare --out corpus.tok --train-tokenizer 8192 --tokenizer my-tokenizer stories.jsonl\n"
    "  git ls-files '*.md' | prepare --out docs.tok --files-from -\n"
    "  find docs -name '*.md' -print0 | prepare --out docs.tok --files-from - -0\n"
    "  prepare --kept data --unused-days 30 --remove-unused\n";

std::vector<Option> options_of(Options& o) {
  return {
      {"--out", &o.out, "token file to write; its folder is created if missing", {.type = "FILE"}},
      {"--eval-out",
       &o.eval_out,
       "token file for evaluation; --out gets the other documents",
       {.type = "FILE"}},
      {"--eval-share",
       &o.eval_share,
       "share of documents for --eval-out, above 0 and below 1; 0.05 takes every 20th",
       {.type = "SHARE", .shows_default = true, .needs = {"--eval-out"}}},
      {"--tokenizer",
       &o.encoder.tokenizer,
       "folder of a model or tokenizer, its tokenizer.json, or a GGUF file; without it a token is a byte",
       {.type = "PATH"}},
      {"--train-tokenizer",
       &o.train_tokenizer,
       "train a tokenizer of N tokens on the texts and messages, and write it to the new folder "
       "--tokenizer",
       {.type = "N", .range = NumberRange{kLeastTrainedVocab, kMostTrainedVocab}, .needs = {"--tokenizer"}}},
      {"--chat-template",
       &o.encoder.chat_template,
       "chat template for conversations: a built-in name or a file; default: that of the "
       "tokenizer's folder",
       {.type = "NAME", .needs = {"--tokenizer"}}},
      {"--date",
       &o.encoder.date,
       "date that the chat template prints, if it prints one; default: today's",
       {.type = "YYYY-MM-DD", .needs = {"--tokenizer"}}},
      {"--train-on", choice(&o.encoder.train_on),
       "trained part of a conversation: the assistant's turns, the last of them, or all tokens"},
      {"--records", choice(&o.encoder.records),
       "what a record is: a text, prompt or conversation; a pair of a chosen and a rejected answer; an "
       "answer with a label, true or false; or a rollout, an answer with its advantage, or its reward and "
       "group"},
      {"--image-longest-edge",
       &o.encoder.image_longest_edge,
       "longest side of images in pixels, or side of the square whose area bounds those of Qwen's models; "
       "0 = that of the model whose folder --tokenizer names",
       {.type = "N", .range = NumberRange{0, kMaxImageSide}, .needs = {"--tokenizer"}}},
      {"--text-field",
       &o.encoder.text_field,
       "field of a .jsonl object that holds the document",
       {.type = "NAME", .shows_default = true}},
      {"--split",
       &o.split,
       "document separator in text files",
       {.shows_default = true, .choices = {"none", "blank-lines"}}},
      {"--columns",
       &o.columns,
       "columns to read of Parquet and Arrow tables: prompt,completion; default: all",
       {.type = "NAME,...", .separator = ','}},
      {"--weights",
       &o.weights,
       "how often the samples of each file are written, one number per file: 0.5,2",
       {.type = "W,..."}},
      {"--skip-bad", &o.skip_bad, "count records that cannot be read instead of stopping at the first"},
      {"--max-tokens",
       &o.most_tokens,
       "a sample with more tokens counts as a bad record, for example with more than data.seq_len; "
       "0 = no limit",
       {.type = "N", .range = NumberRange{0}}},
      {"--show",
       &o.show,
       "print the first N samples, with the trained tokens marked",
       {.type = "N", .range = NumberRange{0}}},
      {"--files-from",
       &o.files_from,
       "file that lists more files to read, one per line; -: standard input",
       {.type = "LIST"}},
      {"-0,--null",
       &o.null,
       "names in LIST end with a zero byte instead of a line break, as from find -print0",
       {.needs = {"--files-from"}}},
      {"--kept",
       &o.kept,
       "list the files that runs keep for the texts and token files in these folders: size, last use, and "
       "why no run can use one; makes no tokens",
       {.excludes = {"--out"}}},
      {"--remove-unused",
       &o.remove_unused,
       "remove those that no run can use; a run makes again what it needs",
       {.needs = {"--kept"}}},
      {"--unused-days",
       &o.unused_days,
       "files that no run has used for N days are unused, too",
       {.type = "N", .range = NumberRange{1, kMostDays}, .needs = {"--kept"}}},
      {"FILES", &o.files, "files to read, or with --kept folders", {.type = ""}},
  };
}

void append_list(std::istream& list, const std::string& name, char end, std::vector<std::string>& files) {
  int64_t number = 1;
  std::string file;
  const auto add = [&] {
    check(!file.empty(), name, ':', number, ": is empty, must be a path");
    files.push_back(std::exchange(file, {}));
    ++number;
  };
  for (int c; (c = list.get()) != std::istream::traits_type::eof();) {
    if (c == end) {
      add();
      continue;
    }
    check(c != 0, name, ':', number, ": contains a zero byte; if zero bytes end the names, use -0 (--null)");
    file += static_cast<char>(c);
    check(file.size() < PATH_MAX, name, ':', number, ": is longer than ", PATH_MAX - 1,
          " bytes, the maximum of a path");
  }
  check(!list.bad(), name, ": cannot be read");
  if (!file.empty()) add();
}

std::vector<std::string> input_files(const Options& o, std::istream& in) {
  std::vector<std::string> files = o.files;
  const char end = o.null ? '\0' : '\n';
  if (o.files_from == "-") {
    append_list(in, "standard input", end, files);
  } else if (o.files_from) {
    std::ifstream list(*o.files_from);
    check(list.is_open(), "--files-from \"", *o.files_from, "\": cannot open: ", std::strerror(errno));
    append_list(list, *o.files_from, end, files);
  }
  check(!files.empty(), "no input files: name files, or a list of them with --files-from");
  return files;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error_a, error_b;  // a pipe has no canonical name and cannot be overwritten
  const fs::path path_a = fs::weakly_canonical(fs::absolute(a), error_a);
  const fs::path path_b = fs::weakly_canonical(fs::absolute(b), error_b);
  return !error_a && !error_b && path_a == path_b;
}

void check_outputs(const Options& o) {
  check(o.eval_share > 0 && o.eval_share < 1, "--eval-share is ", o.eval_share,
        ", must be above 0 and below 1");
  for (const std::string& out : outputs(o)) file_to_write(out);
  if (!o.encoder.date.empty()) check_date("--date", o.encoder.date);
  check(!o.eval_out || !same_file(o.out, *o.eval_out), "--out and --eval-out are the same file, ", o.out);
}

// Checks all inputs up front: reading the first may take hours.
void check_inputs(const Options& o, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const bool readable = access(file.c_str(), R_OK) == 0;
    check(readable, file, ": cannot open: ", std::strerror(errno));
    const fs::file_status status = fs::status(file);
    check(!fs::is_directory(status), file, ": is a folder; name the files in it, perhaps with --files-from");
    check(fs::is_regular_file(status) || fs::is_fifo(status), file,
          ": is a device or a socket, must be a file or a pipe");
    for (const std::string& out : outputs(o))
      check(!same_file(file, out), file, ": is both read and written");
    if (fs::is_regular_file(status)) check_records(file, o.columns);  // a pipe can be read only once
  }
  const std::string list = o.files_from == "-" ? "/dev/stdin" : o.files_from.value_or("");
  for (const std::string& out : outputs(o))
    check(list.empty() || !same_file(list, out), out, ": is both read as --files-from and written");
}

void make_folder_of(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  check(!error, folder.string(), ": cannot create the folder: ", error.message());
}

void check_split(const Options& o, const DatasetCounts& counts, const TokenWriter& train,
                 const TokenWriter* eval) {
  check(counts.samples > 0 || counts.untrained + counts.bad > 0, "the input has no text; ",
        counted(counts.empty, "empty document"), " read");
  check(counts.samples > 0, "no sample can be trained on: ", dropped(counts),
        counts.bad > 0 ? "; the first is bad because " : "", counts.first_bad);
  if (!eval) return;
  check(counts.samples > 1,
        "one document cannot be split between --out and --eval-out; "
        "split text files with --split blank-lines, add documents, or omit --eval-out");
  const auto has_documents = [&](const TokenWriter& writer, const char* option, const char* change) {
    check(writer.document_count() > 0, "with --eval-share ", o.eval_share, " none of the ", counts.samples,
          " documents goes to ", option, "; use a ", change, " share, or omit --eval-out");
  };
  has_documents(*eval, "--eval-out", "larger");
  has_documents(train, "--out", "smaller");
}

// Writes all data before the first file gets its final name.
void finish(TokenWriter& train, TokenWriter* eval) {
  train.complete();
  if (eval) eval->finish();
  train.finish();
}

void report(std::ostream& out, const std::string& path, const TokenWriter& writer, int64_t vocab) {
  out << path << ": " << counted(writer.document_count(), "document") << ", "
      << counted(writer.size(), "token");
  if (writer.image_count() > 0) out << ", " << counted(writer.image_count(), "image");
  if (writer.trained() < writer.size())
    out << ", " << fixed(100 * static_cast<double>(writer.trained()) / static_cast<double>(writer.size()), 1)
        << "% trained";
  out << ", vocabulary " << vocab << ", " << human_bytes(writer.file_bytes()) << '\n';
}

// Shows a sample, or both answers of a pair, as text.
std::string pictures_of(const Record& record, std::span<const Sample> documents, const SampleEncoder& encoder,
                        bool colors) {
  std::string pictures;
  Record shown = record;
  for (const Sample& document : documents) {
    const bool is_first = &document == &documents.front();
    if (encoder.records() == RecordKind::pairs)
      shown.where = str(record.where, is_first ? ", chosen" : ", rejected");
    if (encoder.records() == RecordKind::labels && !is_first)
      shown.where = str(record.where, ", the completion of the record before");
    pictures += picture_of(shown, document, encoder, colors);
  }
  return pictures;
}

std::vector<DatasetFile> weighted(const Options& o, const std::vector<std::string>& paths) {
  check(o.weights.empty() || o.weights.size() == paths.size(), "--weights has ",
        counted(std::ssize(o.weights), "number"), " for ", counted(std::ssize(paths), "file"));
  std::vector<DatasetFile> files;
  for (size_t i = 0; i < paths.size(); ++i) {
    const double weight = o.weights.empty() ? 1 : o.weights[i];
    check(weight > 0 && weight <= kMostWeight, "--weights: ", weight, " for ", paths[i],
          ", must be above 0 and at most ", kMostWeight);
    files.push_back({paths[i], weight});
  }
  return files;
}

// The size of all files; nothing if one is a pipe.
std::optional<int64_t> bytes_of(const std::vector<DatasetFile>& files) {
  int64_t bytes = 0;
  for (const DatasetFile& file : files) {
    if (!fs::is_regular_file(file.path)) return {};
    bytes += static_cast<int64_t>(fs::file_size(file.path));
  }
  return bytes;
}

// Trains a tokenizer on the texts, and writes it to a new folder.
void train_tokenizer(const Options& o, const std::vector<DatasetFile>& files) {
  check(bytes_of(files).has_value(), "--train-tokenizer reads the files twice, so none may be a pipe");
  BpeTrainer trainer({.vocab = o.train_tokenizer, .special = {kEndOfText}});
  for (const DatasetFile& file : files)
    read_records(
        file.path, split_of(o),
        [&](const Record& record) {
          try {
            for (const Record& sample : sample_records(record, o.encoder.records))
              for (const std::string& text : texts_of(sample, o.encoder.text_field)) trainer.add(text);
          } catch (const Error&) {
            if (!o.skip_bad) throw;  // otherwise the encoder counts the bad records
          }
        },
        o.columns);
  NewFolder folder(o.encoder.tokenizer);
  folder.write("tokenizer.json", trainer.tokenizer_json());
  folder.write(
      "tokenizer_config.json",
      str("{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"eos_token\": \"", kEndOfText, "\"}\n"));
  folder.finish();
}

// The day in UTC: "2026-11-28".
std::string day_of(std::chrono::system_clock::time_point time) {
  const std::chrono::year_month_day day(std::chrono::floor<std::chrono::days>(time));
  std::ostringstream text;
  text << static_cast<int>(day.year()) << std::setfill('0') << '-' << std::setw(2)
       << static_cast<unsigned>(day.month()) << '-' << std::setw(2) << static_cast<unsigned>(day.day());
  return std::move(text).str();
}

void list_kept(const Options& o, std::ostream& out) {
  check(!o.files.empty(), "--kept needs the folders of texts or token files");
  const auto now = std::chrono::system_clock::now();
  int64_t bytes = 0, unused_bytes = 0, count = 0, unused = 0;
  for (const std::string& folder : o.files)
    for (KeptFile& file : kept_files(folder)) {
      const auto days = std::chrono::floor<std::chrono::days>(now - file.last_use).count();
      if (file.why_unused.empty() && o.unused_days > 0 && days >= o.unused_days)
        file.why_unused = str("not used for ", counted(days, "day"));
      const bool removes = o.remove_unused && !file.why_unused.empty();
      if (removes) {
        std::error_code error;
        fs::remove(file.path, error);
        check(!error, file.path, ": cannot remove: ", error.message());
      }
      out << printable(file.path) << ": " << human_bytes(file.bytes) << ", last used "
          << day_of(file.last_use) << (file.why_unused.empty() ? "" : "; " + printable(file.why_unused))
          << (removes ? "; removed" : "") << '\n';
      ++count;
      bytes += file.bytes;
      if (file.why_unused.empty()) continue;
      ++unused;
      unused_bytes += file.bytes;
    }
  out << counted(count, "file") << " of " << human_bytes(bytes);
  if (unused > 0)
    out << "; " << unused << " of " << human_bytes(unused_bytes)
        << (o.remove_unused ? " removed" : " unused: --remove-unused removes them");
  out << '\n';
}

void prepare(Options o, const Streams& streams) {
  if (o.kept) return list_kept(o, streams.out);
  check(!o.out.empty(), "--out is required; usage: prepare FILES [OPTIONS], see prepare --help");
  const std::vector<std::string> paths = input_files(o, streams.in);
  check_outputs(o);
  check_inputs(o, paths);
  const std::vector<DatasetFile> files = weighted(o, paths);
  for (const std::string& out : outputs(o)) make_folder_of(out);
  if (o.train_tokenizer > 0) train_tokenizer(o, files);
  o.encoder.tokenizer = tokenizer_folder_of(o.encoder.tokenizer);
  const SampleEncoder encoder(o.encoder);
  const DatasetOptions options{.encoder = o.encoder,
                               .split = split_of(o),
                               .columns = o.columns,
                               .skip_bad = o.skip_bad,
                               .most_tokens = o.most_tokens,
                               .eval_share = o.eval_out ? o.eval_share : 0};
  const std::string manifest = make_manifest(files, options, encoder);
  TokenWriter train(o.out, encoder.vocab());
  train.set_manifest(manifest);
  std::optional<TokenWriter> eval;
  if (o.eval_out) eval.emplace(*o.eval_out, encoder.vocab()).set_manifest(manifest);
  TokenWriter* const eval_writer = eval ? &*eval : nullptr;

  DatasetCounts counts;
  std::string shown;
  {
    const std::optional<int64_t> bytes = bytes_of(files);
    ByteProgress progress(bytes.value_or(0), streams.err_is_terminal && bytes ? &streams.err : nullptr);
    int64_t left_to_show = o.show;
    counts = write_dataset(
        files, options, encoder, train, eval_writer, [&](int64_t done) { progress.add(done); },
        [&](const Record& record, std::span<const Sample> documents) {
          if (left_to_show-- > 0) shown += pictures_of(record, documents, encoder, streams.out_is_terminal);
        });
  }
  check_split(o, counts, train, eval_writer);
  finish(train, eval_writer);
  streams.out << shown << "read " << counted(std::ssize(files), "file") << ", " << human_bytes(counts.bytes)
              << ": " << counted(counts.samples, noun_of(o.encoder.records)) << "; dropped "
              << dropped(counts) << '\n';
  if (counts.bad > 0) streams.err << "prepare: the first bad record: " << printable(counts.first_bad) << '\n';
  for (const std::string& warning : counts.warnings) streams.err << "prepare: " << printable(warning) << '\n';
  report(streams.out, o.out, train, encoder.vocab());
  if (eval) report(streams.out, *o.eval_out, *eval, encoder.vocab());
}

}  // namespace

int run_prepare(const Arguments& arguments, const Streams& streams) {
  Options options;
  const Command program{.name = "prepare",
                        .about = kDescription,
                        .options = options_of(options),
                        .run =
                            [&] {
                              prepare(options, streams);
                              return 0;
                            },
                        .footer = kFooter};
  return run_program(program, arguments, streams);
}

}  // namespace flatshard
